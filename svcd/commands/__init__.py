"""The commands for people, beside the daemon: `svcd import`, `svcd search` and so on; one module each.

A command talks to a running daemon over HTTP, or has one started for a data folder (instance.py); verify and config look at
files alone. They are found by the table COMMANDS of svcd.cli.main, and loaded only when they are called. Each has --json for
scripts, and ends with status 0, 1 for what failed, 2 for a wrong command line, 3 when no instance answers.
"""
