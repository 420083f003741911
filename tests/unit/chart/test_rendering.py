"""What Helm makes of the chart."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.servers import go_program

CHART = Path(__file__).parents[3] / "charts" / "dsagent"
VARIANTS = {
    "as it is": (),
    "with all": (
        *("--set=secretNamespaces.research={s3-keys}", "--set=agent.sources={/mnt/nfs}", "--set=agent.tokensSecret=t"),
        *("--set=agent.settings.DSAGENT_CAPACITY=2T", "--set=image.registry=registry.example/"),
        *("--set=image.pullSecrets={key}", "--set=webhook.certManager=true", "--set=podMonitor.create=true"),
        *("--set=podMonitor.tokenSecret.name=t", "--set=scheduler.create=true", "--set=scheduler.tlsSecret=tls"),
        *("--set=scheduler.caBundle=PEM", "--set=topology.enabled=true"),
        *("--set=scheduler.kubeScheduler.create=true",),
    ),
    "with as little as can be": ("--set=networkPolicy.create=false", "--set=priorityClass.create=false"),
}

pytestmark = pytest.mark.needs("helm")


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([go_program("helm"), *arguments], check=False, capture_output=True, text=True)


def rendered(*options: str) -> str:
    done = helm("template", "dsagent", str(CHART), "--namespace=caches", "--kube-version=1.34.3", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(*options: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Of the cluster's part and of the namespace's, hooks among them; no two have one name."""
    found = [one for one in yaml.safe_load_all(rendered(*options)) if one]
    by_name = {(one["kind"], f"{one['metadata'].get('namespace', '')}/{one['metadata']['name']}"): one for one in found}
    assert len(by_name) == len(found)
    return by_name


def test_helm_finds_nothing_to_complain_of() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())
def test_the_same_values_give_the_same_text(options: tuple[str, ...]) -> None:
    assert rendered(*options) == rendered(*options)


def test_one_value_for_the_host_path_feeds_everything() -> None:
    assert "/var/lib/dsagent" in rendered()
    text = rendered("--set=hostPath=/nvme/cache")
    assert "/var/lib/dsagent" not in text
    assert text.count("/nvme/cache") > 3


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--set=hostpath=/nvme", "hostpath"),
        ("--set=hostPath=nvme", "hostPath"),
        ("--set=controller.podTimeout=2h", "podTimeout"),
        ("--set=webhook.replicas=0", "replicas"),
        ("--set=agent.settings.CAPACITY=2T", "CAPACITY"),
        ("--set=scheduler.create=true", "scheduler.tlsSecret"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(option: str, said: str) -> None:
    done = helm("template", "dsagent", str(CHART), "--kube-version=1.34.3", option)
    assert done.returncode
    assert said in done.stderr


def test_cert_manager_signs_what_the_webhook_serves_and_api_servers_trust() -> None:
    found = objects(*VARIANTS["with all"])
    (configuration,) = [
        one
        for (kind, _), one in found.items()
        if kind == "MutatingWebhookConfiguration"
        if "datasets.dsagent.io" in (hook["name"] for hook in one["webhooks"])
    ]
    certificate = found["Certificate", configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]]
    pod = found["Deployment", "caches/dsagent-webhook"]["spec"]["template"]["spec"]
    assert certificate["spec"]["secretName"] in [one.get("secret", {}).get("secretName") for one in pod["volumes"]]
    (service,) = [hook["clientConfig"]["service"] for hook in configuration["webhooks"]]
    assert certificate["spec"]["dnsNames"] == [f"{service['name']}.{service['namespace']}.svc"]
    issuer = found["Issuer", f"caches/{certificate['spec']['issuerRef']['name']}"]
    authority = found["Certificate", f"caches/{issuer['spec']['ca']['secretName']}"]
    assert authority["spec"]["isCA"]
    assert ("Secret", "caches/dsagent-webhook-certificate") not in found  # cert-manager makes it


def test_no_part_may_read_secrets_but_those_that_are_named() -> None:
    found = objects("--set=secretNamespaces.research={s3-keys}")
    for (kind, name), one in found.items():
        for rule in one.get("rules") or () if kind in ("ClusterRole", "Role") else ():
            if "secrets" in rule["resources"] or "*" in rule["resources"]:
                assert kind == "Role", name
                assert rule["resourceNames"], name
                assert not {"list", "watch", "create", "*"} & set(rule["verbs"]), name
            assert "*" not in rule["verbs"], name


def test_everything_is_labelled_as_ours_so_that_it_can_be_found() -> None:
    for name, one in objects(*VARIANTS["with all"]).items():
        assert one["metadata"]["labels"]["app.kubernetes.io/part-of"] == "dsagent", name
