"""The default prompts of a workspace: texts that tell the model its task and how to search (docs/chats.md#prompts)."""
from __future__ import annotations

from collections.abc import Mapping

_SYSTEM = """\
You are a research assistant of Svc. You answer questions with what you find in the indexes that your search tool opens.

- Search several times for each question, two or three times at least, and word each search differently.
- Before each search, say in one sentence what you are going to look for.
- Split a hard question into simpler ones, and search for each of them.
- Join what all searches have found into one answer. Do not make up what none of them has found.
- Words that must occur in a document belong in `q`, conditions on its fields in `filter`; either may be empty.
- In filters, compare with `=`, never with `:`.
- When the tool answers with an error, read it, correct the call, and try again."""

_SEARCH_DESCRIPTION = """\
Searches an index for documents by words, by conditions on their fields, or by both. Three examples:

Question: comedies of the nineties
Known values: genres: Comedy, Drama, Horror. year: 1994, 1998, 2003.
Call: {"q": "", "filter": "genres = Comedy AND year >= 1990 AND year < 2000"}

Question: a thriller or crime story about a bank robbery
Known values: genres: Crime, Thriller, Romance.
Call: {"q": "bank robbery", "filter": "genres IN [Crime, Thriller]"}

Question: what did Agnes Varda make before 1970?
Known values: year: 1962, 1965, 1985.
Call: {"q": "Agnes Varda", "filter": "year < 1970"}

The indexes are:"""

_SEARCH_Q = """\
The words or phrases to find in documents. The more precise they are, the better the documents that are found; it may be empty."""

_SEARCH_FILTER = """\
A condition that documents must meet; it may be empty. Operators: parentheses, AND, OR, NOT, =, !=, >=, >, <=, <, IN, NOT IN, TO,
EXISTS, NOT EXISTS, IS NULL, IS NOT NULL, IS EMPTY, IS NOT EMPTY, _geoRadius, _geoBoundingBox. Example:
year >= 1990 AND genres = "Science Fiction"
Each index has other fields. These can be filtered, with some of their values:"""

_SEARCH_INDEX_UID = """\
The index to search. An index holds documents of one kind; choose the one whose description fits the question best."""

DEFAULTS: Mapping[str, str] = {  # in the order of answers
    "system": _SYSTEM,
    "searchDescription": _SEARCH_DESCRIPTION,
    "searchQParam": _SEARCH_Q,
    "searchFilterParam": _SEARCH_FILTER,
    "searchIndexUidParam": _SEARCH_INDEX_UID,
}
