"""`svcd search` and `svcd status`: show hits of an index, with matches in colour, and the indexes and tasks of an instance."""
from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from svcd.commands import instance, output
from svcd.commands.instance import Instance, Refused, index_path
from svcd.mcp.passages import TITLES

# Marks around matches: characters for private use, which do not occur in texts.
_OPEN, _CLOSE = "\ue000", "\ue001"
_CROPPED_WORDS = 30
_STATES = ("enqueued", "processing", "failed")


@click.command("search", help="Search INDEX for WORDS; without words, show all documents.")
@click.argument("index")
@click.argument("words", nargs=-1)
@click.option("--limit", default=10, show_default=True, type=click.IntRange(min=0), help="Maximum number of hits.")
@click.option("--filter", "filter_text", help="For example: year < 1980 AND genres = Drama")
@click.option("--sort", help="For example: year:desc,title:asc")
@click.option("--facets", help="Count the values of these attributes, separated by commas; * for all.")
@click.option("--scores", is_flag=True, help="Show the ranking score of each hit, and the score of each rule.")
@instance.options
@click.option("--json", "is_json", is_flag=True, help="Print the answer of the search as JSON.")
@click.pass_context
def search_command(context: click.Context, index: str, words: tuple[str, ...], limit: int, filter_text: str | None,
                   sort: str | None, facets: str | None, scores: bool, url: str | None, key: str | None, folder: Path | None,
                   is_json: bool) -> int:
    """Search once and print."""
    query: dict[str, Any] = {"q": " ".join(words), "limit": limit, "showRankingScore": scores, "showRankingScoreDetails": scores}
    if filter_text is not None:
        query["filter"] = filter_text
    for name, listed in (("sort", sort), ("facets", facets)):
        if listed is not None:
            query[name] = [each.strip() for each in listed.split(",")]
    if not is_json:
        query |= {"attributesToHighlight": ["*"], "highlightPreTag": _OPEN, "highlightPostTag": _CLOSE,
                  "attributesToCrop": ["*"], "cropLength": _CROPPED_WORDS}
    with instance.opened(context, url, key, folder) as source:
        found = source.call("POST", f"{index_path(index)}/search", query)
    if is_json:
        output.print_json(found)
    else:
        print(shown(found))
    return 0


def shown(found: Mapping[str, Any]) -> str:
    """Format the result of a search."""
    parts = [text for hit in found["hits"] for text in (_hit(hit), "")]
    for name, counts in (found.get("facetDistribution") or {}).items():
        listed = ", ".join(f"{value} ({count})" for value, count in counts.items())
        parts += [f"{output.styled(name, 'name')}: {listed or 'no values'}"]
    total = found.get("estimatedTotalHits", found.get("totalHits", 0))
    noun = "hit" if total == 1 else "hits"
    parts.append(output.styled(f"{len(found['hits'])} of {total:,} {noun}, {found['processingTimeMs']} ms", "faint"))
    return "\n".join(parts)


def rule_lines(details: Mapping[str, Any]) -> Iterator[str]:
    """Format the results of ranking rules, one a line."""
    for rule, detail in details.items():
        reason = str(detail) if not isinstance(detail, dict) else ", ".join(
            f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in detail.items() if name != "order")
        yield f"  {output.styled(rule, 'faint')}: {reason}"


def _hit(hit: Mapping[str, Any]) -> str:
    formatted = {name: _text(value, hit.get(name)) for name, value in hit.get("_formatted", hit).items()
                 if not name.startswith("_")}
    title = next((name for name in TITLES if name in formatted), next(iter(formatted), None))
    score = f"  {output.styled(format(hit['_rankingScore'], '.3f'), 'good')}" if "_rankingScore" in hit else ""
    lines = [output.styled(_marked(formatted.pop(title)) if title else "{}", "bold") + score]
    lines += [f"  {output.styled(name, 'name')}: {_marked(value)}" for name, value in formatted.items()]
    lines += rule_lines(hit.get("_rankingScoreDetails", {}))
    return "\n".join(lines)


def _text(formatted: Any, value: Any) -> str:
    """Return a formatted value as text; lists of texts and numbers without brackets and quotes.

    value: the value in the document. Formatted numbers are texts, in which digits may be marked.
    """
    if isinstance(formatted, str):
        return formatted
    is_list = isinstance(formatted, list) and all(isinstance(each, str) for each in formatted)
    return ", ".join(formatted) if is_list else _json(formatted, value)


def _json(formatted: Any, value: Any) -> str:
    """Return a formatted value as JSON, its numbers without quotes."""
    if isinstance(formatted, list) and isinstance(value, list):
        return f"[{', '.join(map(_json, formatted, value))}]"
    if isinstance(formatted, dict) and isinstance(value, dict):
        return f"{{{', '.join(f'{_json(name, name)}: {_json(each, value.get(name))}' for name, each in formatted.items())}}}"
    is_number = isinstance(formatted, str) and isinstance(value, (int, float))
    return formatted if is_number else json.dumps(formatted, ensure_ascii=False)


def _marked(text: str) -> str:
    """Return a text on one line, with matches in colour."""
    first, *others = " ".join(text.split()).split(_OPEN)
    parts = (piece.partition(_CLOSE) for piece in others)
    return first + "".join(output.styled(found, "found") + after for found, _, after in parts)


# Status


@click.command("status", help="Show whether the instance runs, its indexes, and its tasks. Ends with status 3 when it does "
                                "not answer.")
@instance.options
@click.option("--json", "is_json", is_flag=True, help="Print it as JSON.")
@click.pass_context
def status_command(context: click.Context, url: str | None, key: str | None, folder: Path | None, is_json: bool) -> int:
    """Ask once and print."""
    with instance.opened(context, url, key, folder) as source:
        found = _status(source)
    if is_json:
        output.print_json(found)
    else:
        _print_status(found)
    return 0


def _status(source: Instance) -> dict[str, Any]:
    health = source.call("GET", "/health")["status"]
    try:
        stats, version = source.call("GET", "/stats"), source.call("GET", "/version")["pkgVersion"]
    except Refused as refused:
        return {"url": source.url, "status": health, "refused": str(refused)}
    tasks = {state: source.call("GET", f"/tasks?statuses={state}&limit=0")["total"] for state in _STATES}
    running = source.call("GET", "/batches?statuses=processing&limit=1")["results"]
    return {
        "url": source.url, "status": health, "version": version, "databaseSize": stats["databaseSize"],
        "indexes": {uid: {"documents": each["numberOfDocuments"], "isIndexing": each["isIndexing"]}
                    for uid, each in stats["indexes"].items()},
        "tasks": tasks, "progress": running[0]["progress"]["percentage"] if running and running[0].get("progress") else None,
    }


def _print_status(found: dict[str, Any]) -> None:
    print(f"{found['url']}  {output.styled(found['status'], 'good')}")
    if "refused" in found:
        print(found["refused"])
        return
    tasks = found["tasks"]
    print(f"interface {found['version']}, {output.size(found['databaseSize'])} on disk")
    print(f"tasks: {tasks['enqueued']:,} waiting, {tasks['processing']:,} running"
          f"{'' if found['progress'] is None else format(found['progress'], '.0f').join((' (', ' %)'))}, "
          + output.styled(f"{tasks['failed']:,} failed", "bad" if tasks["failed"] else "faint"))
    if found["indexes"]:
        print(output.table([[output.shortened(uid), f"{each['documents']:,} documents", "indexing" if each["isIndexing"] else ""]
                            for uid, each in found["indexes"].items()]))
