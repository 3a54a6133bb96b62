"""The search rules of the instance as the searches of this process use them, compiled once for each change of the rules.

Every process reads them from the hidden index of the rules, so that all see a change with the task that made it.
"""
from __future__ import annotations

import os
import threading
from typing import NamedTuple

from svcd.base.errors import ApiError
from svcd.base.json_text import loads
from svcd.base.quantities import now
from svcd.instance.data_folder import DataFolderReader
from svcd.rules.rule_set import IndexRules, RuleSet
from svcd.rules.stored import INDEX_UID, PRIMARY_KEY
from svcd.rules.values import limits_of


class QueryRules(NamedTuple):
    """The rules that may pin documents for one query. cache_key: what its answer depends on besides the query."""

    rules: IndexRules
    cache_key: str


class ActiveRules:
    """The rules of one data folder. Thread-safe."""

    def __init__(self, instance: DataFolderReader) -> None:
        self._instance = instance
        self._limits = limits_of(os.environ)
        self._lock = threading.Lock()  # held while rules are compiled, so that one thread does it
        self._compiled: RuleSet | None = None

    def of_query(self, index_uid: str) -> QueryRules | None:
        """The rules for a query that begins now; None if none can pin a document of this index."""
        rules = self._rules()
        moment = now()
        found = rules.of_query(index_uid, moment) if rules else None
        return None if found is None or rules is None else QueryRules(found, repr((rules.key, rules.interval(moment))))

    def _rules(self) -> RuleSet | None:
        """The current rules, compiled if they have changed; None if the instance has no rules."""
        state = self._instance.index_state(INDEX_UID)
        if state is None:
            return None
        compiled = self._compiled
        if compiled is not None and compiled.key == state.state:
            return compiled
        with self._lock:
            compiled = self._compiled
            if compiled is not None and compiled.key == state.state:
                return compiled
            try:
                with self._instance.read(INDEX_UID) as reader:
                    documents = [loads(text) for text in reader.texts()]
                    docid_of = reader.identified_docids([str(document[PRIMARY_KEY]) for document in documents])
                    compiled = RuleSet(((docid_of[str(document[PRIMARY_KEY])], document) for document in documents),
                                       reader.settings.analyzer, self._limits, reader.state)
            except ApiError:  # index_not_found: a task has just deleted the index
                compiled = None
            self._compiled = compiled
            return compiled
