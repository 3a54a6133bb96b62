"""What may be in a body or a query string: checks, their messages, their description.

`checks` covers JSON values, `query` query strings, `uids` the names of indexes, `uuids` those of all else,
`wording` the sentences.
Routes and settings declare their fields with these; nothing here knows one of them.
"""
from svcd.fields import query
from svcd.fields.checks import (
    ABSENT,
    Check,
    Field,
    any_object,
    anything,
    array_of,
    boolean,
    bounded,
    decode_body,
    decode_value,
    integer,
    map_of,
    non_zero,
    nullable,
    number,
    object_of,
    object_or,
    one_of,
    parsed,
    positive_integer,
    string,
)
from svcd.fields.query import STAR, Param, decode_query
from svcd.fields.uids import (
    checked_index_uid,
    index_uid,
    index_uid_pattern,
    parse_index_uid,
    parse_index_uid_pattern,
)
from svcd.fields.uuids import parse_uuid, uuid
from svcd.fields.wording import FieldError, did_you_mean

__all__ = [
    "ABSENT", "STAR", "Check", "Field", "FieldError", "Param", "any_object", "anything", "array_of", "boolean",
    "bounded", "checked_index_uid", "decode_body", "decode_query", "decode_value", "did_you_mean", "index_uid",
    "index_uid_pattern", "integer", "map_of", "non_zero", "nullable", "number", "object_of", "object_or", "one_of",
    "parse_index_uid", "parse_index_uid_pattern", "parse_uuid", "parsed", "positive_integer", "query", "string", "uuid",
]
