"""What is handed to users: `svcd.pyz`, a wheel and a Debian package, made by `make dist` into `dist/`.

    bundle.py    the files of svcd and of the packages that it needs, as far as they are plain Python
    launcher.py  the lines that start svcd from these files
    zip_file.py  svcd.pyz from these files
    deb.py       the Debian package from these files, written without Debian's tools; its scripts stand in debian/
    build.py     the command

Nothing here is installed with svcd.
"""
