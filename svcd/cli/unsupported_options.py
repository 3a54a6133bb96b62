"""Options of the reference engine that svcd does not have: which they are, and what is said of them.

Those that only tune what svcd does not have, and that the command line knows, stand in the table of options
(`has_effect`); here are the rest. A row leaves this file when svcd gets what it is about. Source: options.json.
"""
from __future__ import annotations

import re

_OBJECT_STORE = "svcd keeps snapshots in a folder, which --snapshot-dir names, and in no object store"

UNSUPPORTED: dict[str, str] = {  # name of the option: why, and what would be right
    **dict.fromkeys((
        "s3_bucket_url", "s3_bucket_region", "s3_bucket_name", "s3_snapshot_prefix", "s3_access_key", "s3_secret_key",
        "experimental_s3_role_arn", "experimental_s3_web_identity_token_file", "experimental_s3_max_in_flight_parts",
        "experimental_s3_compression_level", "experimental_s3_signature_duration_seconds",
        "experimental_s3_multipart_part_size"), _OBJECT_STORE),
    "experimental_personalization_api_key": "svcd does not personalize searches",
    "experimental_dumpless_upgrade": "its name is --upgrade-db since version 1.51, and svcd upgrades anyway",
}

# What the reference reads from variables alone: limits and time-outs of what svcd lacks or bounds otherwise.
VARIABLES_WITHOUT_EFFECT = frozenset((
    "SVC_EXPERIMENTAL_DSR_FUEL_MAX_COUNTED_WORDS", "SVC_EXPERIMENTAL_DSR_FUEL_MAX_ACTIVE_RULES",
    "SVC_EXPERIMENTAL_DSR_FUEL_MAX_PIN_ACTIONS", "SVC_EXPERIMENTAL_DSR_FUEL_WORD_FUEL",
    "SVC_EXPERIMENTAL_DSR_FUEL_FILTER_FUEL", "SVC_EXPERIMENTAL_DSR_FUEL_FILTER_OR_FUEL",
    "SVC_EXPERIMENTAL_DSR_FUEL_FILTER_AND_FUEL", "SVC_EXPERIMENTAL_DSR_FUEL_FILTER_DEPTH_FUEL",
    "SVC_EXPERIMENTAL_REMOTE_SEARCH_TIMEOUT_SECONDS", "SVC_EXPERIMENTAL_PROXY_CONNECT_TIMEOUT_SECONDS",
    "SVC_EXPERIMENTAL_PROXY_BACKOFF_TIMEOUT_SECONDS", "SVC_EXPERIMENTAL_PROXY_REQUEST_TIMEOUT_SECONDS",
    "SVC_EXPERIMENTAL_REST_EMBEDDER_TIMEOUT_SECONDS", "SVC_EXPERIMENTAL_REST_EMBEDDER_MAX_RETRY_DURATION_SECONDS",
    "SVC_EXPERIMENTAL_DISABLE_FID_BASED_DATABASES_CLEANUP", "SVC_OLLAMA_URL", "SVC_OPENAI_API_KEY",
))

# Variables that are no option, and have an effect all the same (the usage report reads it).
OTHER_VARIABLES = frozenset(("SVC_SERVER_PROVIDER",))

# Kubernetes gives such variables to every container beside a service that is called `svc`.
_OF_A_SERVICE = re.compile(r"SVC_(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)", re.ASCII)


def why_unsupported(name: str) -> str | None:
    """Why svcd does not take an option of the reference; None where it does, or where there is none of that name.

    name: in any of its spellings, as --s3-bucket-url, SVC_S3_BUCKET_URL or s3_bucket_url.
    """
    return UNSUPPORTED.get(name.removeprefix("--").removeprefix("SVC_").replace("-", "_").lower())


def is_meant_for_svcd(variable: str) -> bool:
    """Whether somebody who sets this variable may expect an effect of it."""
    return variable.startswith("SVC_") and variable not in OTHER_VARIABLES and not _OF_A_SERVICE.fullmatch(variable)
