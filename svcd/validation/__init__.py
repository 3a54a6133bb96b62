"""Validation of request bodies, query strings and settings, by checks that decode values and describe themselves.

`checks` decodes JSON values, `query_strings` query strings; `names` parses index uids, UUIDs and locales; `messages` writes the
error sentences; `urls` checks addresses and headers of other services. Routes and settings declare their fields with these checks
(docs/http.md).
"""
from svcd.validation import query_strings
from svcd.validation.checks import (
    ABSENT, Check, Field, any_object, anything, array_of, boolean, bounded, decode_body, decode_value, integer, map_of,
    non_zero, nullable, number, object_of, object_or, one_of, parsed, positive_integer, string, text_of,
)
from svcd.validation.messages import FieldError, did_you_mean
from svcd.validation.names import (
    checked_index_uid, index_uid, index_uid_pattern, parse_index_uid, parse_index_uid_pattern, parse_uuid, uuid,
)
from svcd.validation.query_strings import Param, decode_query

__all__ = [
    "ABSENT", "Check", "Field", "FieldError", "Param", "any_object", "anything", "array_of", "boolean", "bounded",
    "checked_index_uid", "decode_body", "decode_query", "decode_value", "did_you_mean", "index_uid", "index_uid_pattern",
    "integer", "map_of", "non_zero", "nullable", "number", "object_of", "object_or", "one_of", "parse_index_uid",
    "parse_index_uid_pattern", "parse_uuid", "parsed", "positive_integer", "query_strings", "string", "text_of", "uuid",
]
