"""What a pod's annotations ask for."""

import pytest

from dsagent.entrypoints.webhook.wishes import Refusal, parse_wishes


def test_a_pod_that_says_nothing_of_ours_asks_for_nothing() -> None:
    assert parse_wishes({"prometheus.io/scrape": "true", "dsagent.io/of-another-part": "x"}) is None


def test_all_that_can_be_said() -> None:
    wishes = parse_wishes(
        {
            "dsagent.io/datasets": "imagenet, coco",
            "dsagent.io/mode": "local",
            "dsagent.io/on-failure": "source",
            "dsagent.io/timeout": "90s",
        }
    )
    assert wishes
    assert [str(one) for one in wishes.references] == ["imagenet", "coco"]
    assert (wishes.mode, wishes.on_failure, wishes.timeout) == ("local", "source", "90s")


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({"dsagent.io/dataset": "coco"}, "no annotation dsagent.io/dataset; did you mean dsagent.io/datasets"),
        ({"dsagent.io/mode": "local"}, "dsagent.io/mode without dsagent.io/datasets"),
        (
            {"dsagent.io/datasets": "a", "dsagent.io/mode": "remote"},
            "dsagent.io/mode is 'remote'; write cache or local",
        ),
        ({"dsagent.io/datasets": "a", "dsagent.io/on-failure": "x"}, "is 'x'; write fail or source"),
        ({"dsagent.io/datasets": "a", "dsagent.io/timeout": "1w"}, "is '1w'; write for example 90s"),
        ({"dsagent.io/datasets": "A"}, "'A', which names no dataset"),
    ],
)
def test_what_cannot_be_meant_is_refused(annotations: dict[str, str], said: str) -> None:
    with pytest.raises(Refusal, match=said):
        parse_wishes(annotations)
