"""The first lines of `svcd`, wherever its files are: they find the files for svcd and for the processes that it starts."""
from __future__ import annotations

# The processes are started with `python -m`: PYTHONPATH tells them the folder; they must not search the current folder.
_LAUNCHER = '''import os
import sys

if sys.version_info < (3, 11):
    sys.exit("svcd: Python 3.11 or later is needed, and this is " + sys.version.split()[0])
home = @HOME@
others = "" if sys.flags.ignore_environment else os.environ.get("PYTHONPATH", "")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (home, others)))
os.environ["PYTHONSAFEPATH"] = "1"
if home not in sys.path:
    sys.path.insert(0, home)

from svcd.cli.main import main

main()
'''


def launcher(home: str) -> bytes:
    """Return the lines. home: a Python expression for the path of the files, a folder or a zip file."""
    return _LAUNCHER.replace("@HOME@", home).encode()
