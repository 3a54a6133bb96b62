"""Chats: a language model answers by searching indexes. The package does no I/O: it builds requests, parses replies, and decides
the next step.

`workspace` has the settings of a workspace, `request` the body of a completion, `sources` the services with their addresses and
errors. `chunks` parses the stream of a service. `turn` declares the search tool and the events that clients may ask for, runs
from the first request to the last, and gets the search as a function. svcd.api.chat_turns opens connections and runs searches
(docs/chats.md).
"""
