"""Routes of the instance as a whole: health, version, statistics, experimental features, and the page at `/`."""
from __future__ import annotations

import re
from base64 import b64encode
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path

import svcd
from svcd import INTERFACE_VERSION
from svcd.api import shapes
from svcd.api.context import Context
from svcd.api.indexes import STATS_PARAMS, index_stats, indexes_at_work
from svcd.api.routes import OF_BODY, Fields, HandlerResult, Route, Text
from svcd.base.errors import ApiError
from svcd.base.json_text import dumps
from svcd.base.quantities import rfc3339_micro
from svcd.validation import Field, boolean, nullable
from svcd.validation.names import FEATURES


def health(ctx: Context) -> HandlerResult:
    """Answer `available`. A node of a cluster adds the state of the cluster."""
    cluster = ctx.services.cluster
    return HandlerResult(200, {"status": "available", **({} if cluster is None else {"cluster": cluster.summary()})})


def version(_ctx: Context) -> HandlerResult:
    """The version of the interface, and the commit if svcd runs from a clone."""
    sha, date = _commit(Path(svcd.__file__).parents[1])
    return HandlerResult(200, {"commitSha": sha, "commitDate": date, "pkgVersion": INTERFACE_VERSION})


@lru_cache(1)
def _commit(root: Path) -> tuple[str, str]:
    """Hash and date of the commit checked out in a folder; `unknown` outside a clone or without git."""
    if (root / ".git").exists():
        import subprocess  # only a clone of the repository loads it, not an installed svcd

        command = ["git", "-C", str(root), "-c", f"safe.directory={root}", "rev-list", "-n1", "--format=%H %cI", "HEAD"]
        try:
            written = subprocess.run(command, check=True, capture_output=True, text=True, timeout=5.0).stdout
            sha, date = written.splitlines()[-1].split()  # below a line "commit ..."
            return sha, date
        except (OSError, subprocess.SubprocessError, ValueError, IndexError):
            pass
    return "unknown", "unknown"


def stats(ctx: Context) -> HandlerResult:
    """Sizes of the database, and the statistics of the indexes that the key may see."""
    members, last_update = [], None
    being_indexed = indexes_at_work(ctx)
    for row in ctx.instance.each_index(ctx.permission.allows):
        last_update = max(last_update or 0, row.updated_at)
        try:
            # As text: the values of ten thousand indexes would take 15 MB.
            members.append(f"{dumps(row.uid)}:{dumps(index_stats(ctx, row, being_indexed))}")
        except ApiError:  # deleted since it was listed
            continue
    size_format = ctx.query["sizeFormat"]
    shown = dumps({
        "databaseSize": shapes.size(ctx.instance.database_size(), size_format),
        "usedDatabaseSize": shapes.size(ctx.instance.used_database_size(), size_format),
        "lastUpdate": None if last_update is None else rfc3339_micro(last_update),
    })
    return HandlerResult(200, Text(f'{shown[:-1]},"indexes":{{{",".join(members)}}}}}'))


def _flags(ctx: Context) -> dict[str, bool | None]:
    """The state of each feature; null if an imported dump left it undefined. Extensions show once they were switched."""
    stored = ctx.instance.features()
    return {flag: stored.get(flag, False) for flag, feature in FEATURES.items() if not feature.is_own or flag in stored}


def get_features(ctx: Context) -> HandlerResult:
    """The state of the experimental features."""
    return HandlerResult(200, _flags(ctx))


def update_features(ctx: Context) -> HandlerResult:
    """Switch features on or off; null and absent members change nothing."""
    changes = {flag: is_on for flag, is_on in ctx.body.items() if is_on is not None}
    ctx.instance.update_features(changes)
    return HandlerResult(200, _flags(ctx))


# The page at `/` for people who open the address in a browser: one static file, which talks to the routes of this instance and to
# nothing else, as its policy forbids any other script, style and address. It is shown in development only (docs/page.md).


def root(ctx: Context) -> HandlerResult:
    """The page for browsers, in development; for all others a sign of life."""
    if ctx.services.shows_page and "text/html" in (ctx.request.headers.get("accept") or ""):
        text, headers = _page()
        return HandlerResult(200, Text(text, "text/html; charset=utf-8"), headers)
    return HandlerResult(200, {"status": "Svc is running"})


@cache
def _page() -> tuple[str, tuple[tuple[str, str], ...]]:
    """The page and its headers."""
    from importlib.resources import files

    text = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    hashes = {}
    for tag in ("script", "style"):  # the policy allows the only element of each kind
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        hashes[tag] = f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"
    policy = "; ".join((
        "default-src 'none'", f"script-src {hashes['script']}", f"style-src {hashes['style']}", "connect-src 'self'",
        "img-src data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"))
    return text, (("Content-Security-Policy", policy), ("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"),
                  ("Cache-Control", "no-cache"), ("Vary", "Accept"))


_FEATURES_BODY = Fields({flag: Field(nullable(boolean), is_listed=not feature.is_own) for flag, feature in FEATURES.items()})

ROUTES = (
    Route("GET", "/", root, None, {200: {"type": "object"}}, "Say that the instance runs", "Health"),
    Route("GET", "/health", health, None, {200: "Health"}, "Get the health", "Health"),
    Route("GET", "/version", version, "version", {200: "Version"}, "Get the version", "Version"),
    Route("GET", "/stats", stats, "stats.get", {200: "Stats"}, "Get statistics of all indexes", "Stats", query=STATS_PARAMS,
          etag=OF_BODY),
    Route("GET", "/experimental-features", get_features, "experimental.get", {200: "Features"},
          "List the experimental features", "Experimental features"),
    Route("PATCH", "/experimental-features", update_features, "experimental.update", {200: "Features"},
          "Switch experimental features", "Experimental features", body=_FEATURES_BODY),
)
