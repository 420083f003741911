"""What every Cluster must do."""

import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any, cast

import pytest

from dsagent.core.cluster import NAMESPACES, PODS, SECRETS, SERVICE_ACCOUNTS, Change, Cluster, Listing, Scope
from dsagent.core.errors import HistoryGone, NoSuchObject, ObjectConflict

NAMESPACE = "contract"


def secret(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": labels},
        "data": {"key": "dmFsdWU="},
    }


def pod(name: str, node: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "image"}], **({"nodeName": node} if node else {})},
    }


def names(listing: Listing) -> list[str]:
    return [one["metadata"]["name"] for one in listing.items]


def following(changes: Iterator[Change | None], count: int) -> list[tuple[str, str]]:
    """The next changes, without bookmarks."""
    found: list[tuple[str, str]] = []
    for change in changes:
        if change is not None and change.kind != "bookmark":
            found.append((change.kind, change.object["metadata"]["name"]))
            if len(found) == count:
                break
    return found


class ClusterContract:
    """Subclasses have a fixture `cluster`; it may have objects of others in other namespaces."""

    @pytest.fixture(autouse=True)
    def _namespace(self, cluster: Cluster) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        try:
            cluster.create(NAMESPACES, body)
            with suppress(ObjectConflict):  # a controller makes it, if there is one
                cluster.create(SERVICE_ACCOUNTS, account, NAMESPACE)
        except ObjectConflict:
            for resource in (PODS, SECRETS):
                for found in cluster.listing(resource, Scope(NAMESPACE)).items:
                    cluster.delete(resource, found["metadata"]["name"], NAMESPACE)

    def test_what_is_created_is_found(self, cluster: Cluster) -> None:
        made = cluster.create(SECRETS, secret("a"), NAMESPACE)
        assert made["metadata"]["uid"]
        assert cluster.get(SECRETS, "a", NAMESPACE) == made
        with pytest.raises(ObjectConflict):
            cluster.create(SECRETS, secret("a"), NAMESPACE)
        with pytest.raises(NoSuchObject):
            cluster.get(SECRETS, "b", NAMESPACE)

    def test_a_name_can_be_left_to_it(self, cluster: Cluster) -> None:
        body = secret("x")
        body["metadata"] = {"generateName": "some-"}
        made = [cluster.create(SECRETS, body, NAMESPACE)["metadata"]["name"] for _ in range(2)]
        assert len(set(made)) == 2
        assert all(name.startswith("some-") for name in made)

    def test_a_listing_has_what_was_asked_for(self, cluster: Cluster) -> None:
        for name, colour in (("a", "red"), ("b", "blue"), ("c", "red")):
            cluster.create(SECRETS, secret(name, colour=colour), NAMESPACE)
        assert names(cluster.listing(SECRETS, Scope(NAMESPACE))) == ["a", "b", "c"]
        assert names(cluster.listing(SECRETS, Scope(NAMESPACE, labels="colour=red"))) == ["a", "c"]
        assert names(cluster.listing(SECRETS, Scope(NAMESPACE, labels="colour"))) == ["a", "b", "c"]
        assert names(cluster.listing(SECRETS, Scope(NAMESPACE, labels="size"))) == []
        assert names(cluster.listing(SECRETS, Scope(NAMESPACE, fields="metadata.name=b"))) == ["b"]
        assert names(cluster.listing(SECRETS, Scope("nowhere"))) == []

    def test_a_merge_patch_changes_what_it_names(self, cluster: Cluster) -> None:
        cluster.create(SECRETS, secret("a", colour="red"), NAMESPACE)
        change = {"metadata": {"labels": {"colour": None, "size": "xl"}}}
        assert cluster.patch(SECRETS, "a", change, NAMESPACE)["metadata"]["labels"] == {"size": "xl"}
        assert cluster.get(SECRETS, "a", NAMESPACE)["data"] == {"key": "dmFsdWU="}
        with pytest.raises(NoSuchObject):
            cluster.patch(SECRETS, "b", change, NAMESPACE)

    def test_who_comes_too_late_with_a_patch_is_told(self, cluster: Cluster) -> None:
        seen = cluster.create(SECRETS, secret("a"), NAMESPACE)["metadata"]["resourceVersion"]
        change = {"metadata": {"resourceVersion": seen, "labels": {"by": "first"}}}
        cluster.patch(SECRETS, "a", change, NAMESPACE)
        with pytest.raises(ObjectConflict):
            cluster.patch(SECRETS, "a", {"metadata": {**change["metadata"], "labels": {"by": "second"}}}, NAMESPACE)

    def test_a_json_patch_takes_steps(self, cluster: Cluster) -> None:
        cluster.create(SECRETS, secret("a", colour="red"), NAMESPACE)
        steps = [
            {"op": "test", "path": "/metadata/labels/colour", "value": "red"},
            {"op": "replace", "path": "/metadata/labels/colour", "value": "blue"},
        ]
        assert cluster.patch(SECRETS, "a", steps, NAMESPACE, how="json")["metadata"]["labels"] == {"colour": "blue"}

    def test_apply_makes_what_is_not_there(self, cluster: Cluster) -> None:
        for colour in ("red", "blue"):
            cluster.patch(SECRETS, "a", secret("a", colour=colour), NAMESPACE, how="apply")
            assert cluster.get(SECRETS, "a", NAMESPACE)["metadata"]["labels"] == {"colour": colour}

    def test_deleted_is_gone(self, cluster: Cluster) -> None:
        made = cluster.create(SECRETS, secret("a"), NAMESPACE)
        with pytest.raises(ObjectConflict):
            cluster.delete(SECRETS, "a", NAMESPACE, uid="another")
        cluster.delete(SECRETS, "a", NAMESPACE, uid=made["metadata"]["uid"])
        with pytest.raises(NoSuchObject):
            cluster.delete(SECRETS, "a", NAMESPACE)

    def test_what_has_finalizers_stays_until_they_are_off(self, cluster: Cluster) -> None:
        body = secret("a")
        body["metadata"]["finalizers"] = ["dsagent.io/test"]
        cluster.create(SECRETS, body, NAMESPACE)
        cluster.delete(SECRETS, "a", NAMESPACE)
        assert cluster.get(SECRETS, "a", NAMESPACE)["metadata"]["deletionTimestamp"]
        cluster.patch(SECRETS, "a", {"metadata": {"finalizers": None}}, NAMESPACE)
        with pytest.raises(NoSuchObject):
            cluster.get(SECRETS, "a", NAMESPACE)

    def test_a_watch_tells_what_happens_after_the_listing(self, cluster: Cluster) -> None:
        cluster.create(SECRETS, secret("a"), NAMESPACE)
        since = cluster.listing(SECRETS, Scope(NAMESPACE)).version
        cluster.create(SECRETS, secret("b"), NAMESPACE)
        with closing(cast("Any", cluster.watch(SECRETS, since, Scope(NAMESPACE), seconds=60))) as changes:
            assert next(changes) is None
            assert following(changes, 1) == [("added", "b")]
            cluster.patch(SECRETS, "a", {"metadata": {"labels": {"x": "y"}}}, NAMESPACE)
            cluster.delete(SECRETS, "b", NAMESPACE)
            assert following(changes, 2) == [("modified", "a"), ("deleted", "b")]

    def test_a_watch_wakes_up_when_something_happens(self, cluster: Cluster) -> None:
        since = cluster.listing(SECRETS, Scope(NAMESPACE)).version
        found: list[tuple[str, str]] = []
        begun = threading.Event()

        def look() -> None:
            with closing(cast("Any", cluster.watch(SECRETS, since, Scope(NAMESPACE), seconds=60))) as changes:
                next(changes)
                begun.set()
                found.extend(following(changes, 1))

        thread = threading.Thread(target=look)
        thread.start()
        assert begun.wait(60)
        cluster.create(SECRETS, secret("a"), NAMESPACE)
        thread.join(60)
        assert found == [("added", "a")]

    def test_a_watch_ends_when_its_time_is_over(self, cluster: Cluster) -> None:
        since = cluster.listing(SECRETS, Scope(NAMESPACE)).version
        changes = [change for change in cluster.watch(SECRETS, since, Scope(NAMESPACE), seconds=1) if change]
        assert [change for change in changes if change.kind != "bookmark"] == []

    def test_a_watch_from_long_ago_is_refused(self, cluster: Cluster) -> None:
        self.forget(cluster)
        with pytest.raises(HistoryGone):
            list(cluster.watch(SECRETS, "1", Scope(NAMESPACE), seconds=1))

    def test_pods_are_selected_by_their_node(self, cluster: Cluster) -> None:
        cluster.create(PODS, pod("here", "n1"), NAMESPACE)
        cluster.create(PODS, pod("there", "n2"), NAMESPACE)
        cluster.create(PODS, pod("nowhere"), NAMESPACE)
        assert names(cluster.listing(PODS, Scope(NAMESPACE, fields="spec.nodeName=n1"))) == ["here"]

    def forget(self, cluster: Cluster) -> None:
        """Lets it not know any more what happened so far."""
        cast("Any", cluster).forget()
