"""python -m dsagent.entrypoints.init.zipapp OUTPUT: the client as one file, to be run with `python -I -S`.

The same sources and the same version of Python give the same bytes. Each module is in it twice: compiled by this
Python, which saves a third of the time to start, and as source for all others. Nothing is compressed: that would cost
time at each start, and its bytes depend on zlib's version. This module is not in it.
"""

import io
import marshal
import os
import sys
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from dsagent import __version__
from dsagent.contract import ExitCode

_PACKAGE = Path(__file__).parents[2]
_INIT = "entrypoints/init"
_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can say
_START = "import sys\n\nfrom dsagent.entrypoints.init import main\n\nsys.exit(main())\n"
_TOP = f'"""The part of dsagent that dsagent-init needs."""\n\n__version__ = "{__version__}"\n'
# Of compiled modules: not to be compared with the sources. They are in the same file, which nobody changes.
_UNCHECKED = MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)
_WITHOUT_REFERENCES = 2  # the newest format of marshal whose bytes do not depend on what else the process has loaded


def _sources() -> dict[str, str]:
    own = [f"{_INIT}/{path.name}" for path in (_PACKAGE / _INIT).glob("*.py") if path.name != Path(__file__).name]
    copied = ["contract.py", "entrypoints/__init__.py", *own]
    return {
        "__main__.py": _START,
        "dsagent/__init__.py": _TOP,
        **{f"dsagent/{name}": (_PACKAGE / name).read_text(encoding="utf-8") for name in copied},
    }


def _compiled(name: str, text: str) -> bytes:
    return _UNCHECKED + marshal.dumps(compile(text, name, "exec", dont_inherit=True), _WITHOUT_REFERENCES)


def build() -> bytes:
    """The zipapp."""
    sources = _sources()
    files = {name: text.encode() for name, text in sources.items()}
    files |= {f"{name}c": _compiled(name, text) for name, text in sources.items()}
    archive = io.BytesIO()
    with ZipFile(archive, "w", ZIP_STORED) as target:
        for name, data in sorted(files.items()):
            entry = ZipInfo(name, _TIME)
            entry.create_system = 3  # Unix, wherever it is built
            entry.external_attr = 0o100644 << 16
            target.writestr(entry, data)
    return archive.getvalue()


def main() -> int:
    """Writes the zipapp to the path given; returns the exit code."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.stderr.write("Usage: python -m dsagent.entrypoints.init.zipapp OUTPUT\n")
        return ExitCode.USAGE
    output = Path(sys.argv[1])
    output.parent.mkdir(parents=True, exist_ok=True)
    scratch = output.with_name(f".{output.name}.new")
    scratch.write_bytes(build())
    os.replace(scratch, output)
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
