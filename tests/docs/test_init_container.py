"""What the guide of the init container says, against the client."""

import re
from pathlib import Path

import yaml

from dsagent import contract
from dsagent.entrypoints.init.settings import load_settings

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "init-container.md").read_text()
NOT_THE_CLIENTS = {"ENV_CAPACITY", "ENV_CLUSTER_NAMESPACE", "ENV_KEEP_FREE", "ENV_DATASET_PREFIX"}
NOT_ENDS = {"ROOT", "INTERRUPTED", "TERMINATED"}  # of the agent's own start; and a line for both signals


def table(heading: str) -> str:
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_every_variable_is_in_the_table() -> None:
    names = {value for name, value in vars(contract).items() if name.startswith("ENV_") and name not in NOT_THE_CLIENTS}
    assert names == {name for name in re.findall(r"`((?:DSAGENT|POD)_\w+)`", table("Variables")) if name.isupper()}


def test_every_exit_code_is_in_the_table() -> None:
    codes = [int(found) for found in re.findall(r"^\| (\d+) \|", table("Exit codes"), re.MULTILINE)]
    assert codes == [int(code) for code in contract.ExitCode if code.name not in NOT_ENDS]


def test_the_pod_is_what_kubernetes_and_the_client_take() -> None:
    documents = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
    (pod,) = [document for document in documents if isinstance(document, dict)]
    (init,), (job,) = pod["spec"]["initContainers"], pod["spec"]["containers"]
    volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
    assert volumes >= {mount["name"] for container in (init, job) for mount in container["volumeMounts"]}
    settings = load_settings({entry["name"]: entry.get("value", "from-kubelet") for entry in init["env"]})
    paths = {mount["mountPath"] for mount in init["volumeMounts"]}
    assert {settings.datasets_dir, str(Path(settings.agent.socket).parent)} <= paths
    assert str(Path(settings.token_file or "").parent) in paths


def test_the_example_in_json_is_taken() -> None:
    (text,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert load_settings({"DSAGENT_DATASETS": text, "DSAGENT_MODE": "local"}).datasets[0].name == "imagenet"
