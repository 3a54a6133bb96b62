"""Chats: a language model answers by searching indexes. All of it is pure: what is sent, what is read, what comes next.

`workspace` has the settings of a workspace, `request` the body of a completion, `sources` the services with their addresses and
errors, `event_stream` and `chunks` read what a service sends, `tools` declares the search tool and the events that clients ask
for, and `turn` is one answer from the first request to the last, with a search as a function. Connections are opened, and
searches run, in svcd.api.chat_turns and svcd.api.chat_searches. See docs/chats.md.
"""
