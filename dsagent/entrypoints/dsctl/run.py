"""dsctl run."""

import dataclasses
import errno
import os
import sys
from typing import Annotated

from dsagent.core.errors import DsagentError, UsageError
from dsagent.entrypoints.dsctl.failure import prepare_for_exec, report
from dsagent.entrypoints.dsctl.options import StorageOption, example
from dsagent.entrypoints.dsctl.parser import Argument
from dsagent.entrypoints.dsctl.render import Output
from dsagent.entrypoints.dsctl.session import Session, location

NOT_EXECUTABLE = 126  # what shells use
NOT_FOUND = 127


def run(
    session: Session,
    datasets: Annotated[str, Argument(metavar="NAME_OR_SOURCE[,…]", help="Names of datasets, or sources to cache.")],
    command: Annotated[list[str] | None, Argument(metavar="-- COMMAND…", help="The program to run.")] = None,
    storage_option: StorageOption = None,
) -> int:
    """Run a program while its datasets stay in place.

    Caches what is missing, sets DSAGENT_DATASET_<NAME> to the path of each dataset and becomes COMMAND. The datasets
    are kept until COMMAND and the children that inherit its descriptors have ended.
    """
    from dsagent.service.run import environment  # noqa: PLC0415 - slow to import

    if not command or not session.separated:
        raise UsageError("run", datasets, "there is no -- and COMMAND", "write dsctl run NAME -- COMMAND ARGUMENTS")
    wanted = datasets.split(",")
    options = location(wanted[0], storage_option).options
    owner = f"dsctl run {os.path.basename(command[0])}"
    held = [session.verbs.find_or_cache(location(one, None).url, options, owner) for one in wanted]
    variables = environment(held)
    for one in held:
        one.lease.inheritable()
    session.close()
    prepare_for_exec()
    try:
        os.execvpe(command[0], command, os.environ | variables)  # noqa: S606 - no shell is asked for
    except OSError as error:
        return _refused(session, command[0], error)


def _refused(session: Session, program: str, error: OSError) -> int:
    missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
    hint = "check its name and PATH" if missing else "check its mode and its first line"
    problem = DsagentError("run", program, error.strerror or str(error), hint).problem()
    code = NOT_FOUND if missing else NOT_EXECUTABLE
    sys.stdout.flush()
    report(dataclasses.replace(problem, exit_code=code), session.output is Output.JSON)
    return code


EXAMPLES = {"run": example("dsctl run imagenet,s3://data/coco -- torchrun train.py")}
