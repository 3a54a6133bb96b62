"""Installable artifacts: `svcd.pyz`, a wheel and a Debian package; `make dist` builds them in `dist/`.

    bundle.py    the files of svcd and of the plain Python packages that it needs
    launcher.py  the lines that start svcd from these files
    zip_file.py  svcd.pyz from these files
    deb.py       the Debian package from these files, written without Debian's tools; its scripts are in debian/
    build.py     the command

Installations of svcd do not contain this package.
"""
