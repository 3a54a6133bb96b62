"""Keep a copy of an index in a JSON file: python3 examples/follow.py http://localhost:7700 films copy.json [KEY]

svcd must keep changes (`--changes-keep SECONDS`). The program may be ended at any time, and continues where it was.
"""
import json
import pathlib
import sys
import time
import urllib.error
import urllib.request

URL, FILE, KEY = f"{sys.argv[1]}/indexes/{sys.argv[2]}", pathlib.Path(sys.argv[3]), sys.argv[4:]


def get(path):
    request = urllib.request.Request(URL + path, headers={"Authorization": f"Bearer {KEY[0]}"} if KEY else {})
    with urllib.request.urlopen(request) as answer:
        return [json.loads(line) for line in answer]


copy = json.loads(FILE.read_text()) if FILE.exists() else {"seq": "0", "documents": {}}
while True:
    try:
        changes = get(f"/changes?since={copy['seq']}&documents=true")
    except urllib.error.HTTPError as error:
        if error.code != 410:
            raise
        # Changes are missing, so read all documents. The position comes first: what changes meanwhile comes again.
        [now], [index], [page], changes = get("/changes"), get(""), get("/documents?limit=1000000000"), []
        copy = {"seq": now["seq"], "documents": {str(each[index["primaryKey"]]): each for each in page["results"]}}
    for change in changes:
        if change["operation"] == "put":
            copy["documents"][change["id"]] = change["document"]
        elif change["operation"] == "delete":
            copy["documents"].pop(change["id"], None)
        else:
            copy["documents"].clear()
        copy["seq"] = change["seq"]
    FILE.with_suffix(".new").write_text(json.dumps(copy))
    FILE.with_suffix(".new").replace(FILE)
    if not changes:
        time.sleep(1)
