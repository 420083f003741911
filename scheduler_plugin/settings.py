"""The weights and modes of the terms and the filters, from a YAML file that is read again when it has changed."""

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from scheduler_plugin.errors import BadSetting

Weight = Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TermSettings(_Strict):
    """A term; weight 0 switches it off."""

    weight: Weight


class DatasetSettings(TermSettings):
    """The dataset term."""

    weight: Weight = 6
    mode: Literal["exact", "expected-wait"] = "exact"


class SpreadSettings(TermSettings):
    """The data spread. `pods`: from how many of a dataset's pods on a node on it is worth less."""

    weight: Weight = 0
    pods: Annotated[int, Field(ge=1, le=100_000)] = 8


class Terms(_Strict):
    """The terms of the score."""

    dataset: DatasetSettings = DatasetSettings()
    rail: TermSettings = TermSettings(weight=1)
    numa: TermSettings = TermSettings(weight=1)
    links: TermSettings = TermSettings(weight=1)
    spread: SpreadSettings = SpreadSettings()


class Filters(_Strict):
    """Why a node is refused. `space`: it could never hold the data; `numa`: kubelet would refuse the pod."""

    space: bool = True
    numa: bool = True


class Toleration(_Strict):
    """A toleration that is added to pods that ask for some rail, as pods have it."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    key: str = ""
    operator: Literal["Exists", "Equal"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    toleration_seconds: int | None = None


class Rails(_Strict):
    """Pods that ask for some rail. `classes`: how its classes are named, with {n} for the rail's number; `tolerations`:
    what those pods tolerate besides; `decide_anew`: whether pending pods are replaced when another class has room.
    """

    classes: Annotated[str, Field(pattern=r"^[a-z0-9.-]+/[A-Za-z0-9._-]*\{n\}[A-Za-z0-9._-]*$")] = (
        "dsagent.io/gpu-roce{n}"
    )
    tolerations: tuple[Toleration, ...] = (Toleration(key="nvidia.com/gpu", operator="Exists"),)
    decide_anew: bool = False

    @property
    def toleration_objects(self) -> list[dict[str, Any]]:
        """The tolerations, as pods have them."""
        return [one.model_dump(by_alias=True, exclude_defaults=True) for one in self.tolerations]


class Settings(_Strict):
    """All of it."""

    terms: Terms = Terms()
    filters: Filters = Filters()
    rails: Rails = Rails()


def load(path: Path) -> Settings:
    """The settings of a file; what it does not name is as always. Raises BadSetting."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        return Settings.model_validate({} if document is None else document)
    except OSError as error:
        raise BadSetting("read", str(path), error.strerror or str(error)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadSetting("read", str(path), f"it is no YAML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise BadSetting("use", str(path), f"{where}: {first['msg']}", "docs/guides/scheduler.md names all") from error
