"""The first lines of `svcd`, wherever its files lie: they find these files, also for the processes that svcd starts."""
from __future__ import annotations

# The processes are started with `python -m`: they get the place by PYTHONPATH, and must not look into the current folder.
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
    """The lines. home: a Python expression for the place of the files, a folder or a zip file."""
    return _LAUNCHER.replace("@HOME@", home).encode()
