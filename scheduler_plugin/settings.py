"""The weights and modes of the terms and the filters, from a YAML file that is read again when it has changed."""

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

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


class Settings(_Strict):
    """All of it."""

    terms: Terms = Terms()
    filters: Filters = Filters()


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
