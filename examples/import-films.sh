#!/bin/sh
# Import the files of a folder into an index, if one of them has changed since the last import that succeeded. For cron:
# import-films.cron beside this file.
#
#   import-films.sh FOLDER INDEX
#
# Files are JSON, NDJSON or CSV, also packed (`svcd import --help`). Move a file into the folder when it is complete
# (mv within one file system): one that is still being written would be read in part. A document that is no longer in
# any file stays in the index.
#
# The daemon and the key are those of SVC_HTTP_ADDR and SVC_MASTER_KEY_FILE, or of another configuration of svcd.
set -eu
folder=$1 index=$2

state=${XDG_STATE_HOME:-$HOME/.local/state}/import-films
mkdir -p "$state"
stamp=$state/$index

# One import at a time: a long one may still run when cron starts the next.
exec 9>"$stamp.lock"
flock -n 9 || exit 0

# -cnewer, not -newer: a file that was moved in keeps the time at which it was written.
if [ -e "$stamp" ] && [ -z "$(find "$folder" -maxdepth 1 -type f -cnewer "$stamp" | head -n 1)" ]; then
    exit 0
fi

# The time before the import: what changes during it is for the next one.
touch "$stamp.next"
# Only errors are printed, on standard error; cron mails them.
svcd import --json "$folder" "$index" >/dev/null
mv "$stamp.next" "$stamp"
