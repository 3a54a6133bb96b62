"""The commands besides the daemon: `svcd import`, `svcd search` and so on; one module each.

A command talks to a running daemon over HTTP, or starts one for a data folder (instance.py); verify and config only read files.
COMMANDS in svcd.cli.main lists the commands, and loads one when it is called. Each has --json for scripts, and ends with status
0, 1 for a failure, 2 for a wrong command line, 3 when no instance answers.
"""
