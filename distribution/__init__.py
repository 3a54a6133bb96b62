"""Installable artifacts: `svcd.pyz`, a wheel and a Debian package; `make dist` builds them in `dist/`, `make release` all files
of a release.

    bundle.py    the files of svcd and of the plain Python packages that it needs
    launcher.py  the lines that start svcd from these files
    zip_file.py  svcd.pyz from these files
    deb.py       the Debian package from these files, written without Debian's tools; its scripts are in debian/
    sdist.py     the source distribution, and the wheel with the same bytes on each machine
    sbom.py      the list of packages in svcd.pyz and the Debian package, in the format CycloneDX
    build.py     the command of `make dist`
    release.py   the command of `make release`

Recipes for other systems, which their maintainers adapt: homebrew/, alpine/, nixos/, openwrt/, home-assistant/ (README.md).

Installations of svcd do not contain this package.
"""
