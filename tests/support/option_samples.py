"""For every option one value that is right and not its default, and for most one that is wrong."""
from __future__ import annotations

from svcd.cli.options import OPTIONS, Option

OTHER: dict[str, str] = {  # as one writes it on the command line
    "config_file_path": "svcd.toml",
    "env": "production",
    "analytics_url": "https://stats.example.com/svcd",
    "http_addr": "[::1]:7800",
    "http_payload_size_limit": "1 MiB",
    "experimental_allowed_ip_networks": "127.0.0.0/8,fd00::/8",
    "master_key": "a-master-key-of-some-length",
    "master_key_file": "key",
    "cluster": "rqlite://a.test,b.test,c.test",
    "node_name": "a",
    "node_url": "http://a.test:7700",
    "error_docs_url": "https://wiki.example.com/errors",
    "exit_when_idle": "300",
    "db_path": "films.ms",
    "dump_dir": "films-dumps",
    "snapshot_dir": "films-snapshots",
    "models_dir": "models",
    "import_dump": "films.dump",
    "schedule_snapshot": "3600",
    "import_snapshot": "films.snapshot",
    "task_webhook_url": "https://hooks.example.com/tasks",
    "task_webhook_authorization_header": "Bearer some-secret",
    "ssl_cert_path": "cert.pem",
    "ssl_key_path": "key.pem",
    "ssl_auth_path": "clients.pem",
    "log_level": "DEBUG",
    "experimental_logs_mode": "JSON",
    "experimental_search_queue_size": "0",
    "experimental_drop_search_after": "5",
    "experimental_nb_searches_per_core": "2",
    "search_workers": "2",
    "mcp_calls_per_minute": "60",
    "search_memory": "64 MiB",
    "query_log": "10 MiB",
    "query_log_days": "7",
    "max_indexing_memory": "64 MiB",
    "max_indexing_threads": "unlimited",
    "parallel_batches_after": "2",
    "changes_keep": "3600",
    "experimental_max_number_of_batched_tasks": "10",
    "experimental_limit_batched_tasks_total_size": "1 GB",
    "experimental_embedding_cache_entries": "100",
    "s3_bucket_url": "https://s3.example.com",
    "s3_bucket_region": "eu-west-1",
    "s3_bucket_name": "backups",
    "s3_snapshot_prefix": "svcd/",
    "s3_access_key": "some-access-key",
    "s3_secret_key": "some-secret-key",
    "experimental_s3_role_arn": "arn:aws:iam::1:role/backups",
    "experimental_s3_web_identity_token_file": "token",
    "experimental_s3_max_in_flight_parts": "2",
    "experimental_s3_compression_level": "6",
    "experimental_s3_signature_duration_seconds": "60",
    "experimental_s3_multipart_part_size": "8 MiB",
    "experimental_personalization_api_key": "a-key-of-a-service",
}

WRONG: dict[str, str] = {
    "config_file_path": "",
    "env": "staging",
    "analytics_url": "ftp://stats.example.com",
    "http_addr": "localhost:99999",
    "http_payload_size_limit": "10 parsecs",
    "experimental_allowed_ip_networks": "10.0.0.0/8,home",
    "master_key": "too-short",
    "master_key_file": "",
    "error_docs_url": "ftp://wiki.example.com",
    "exit_when_idle": "0",
    "db_path": "",
    "dump_dir": "",
    "snapshot_dir": "",
    "models_dir": "",
    "import_dump": "",
    "schedule_snapshot": "0",
    "import_snapshot": "",
    "task_webhook_url": "ftp://hooks.example.com",
    "task_webhook_authorization_header": "two\nlines",
    "ssl_cert_path": "",
    "ssl_key_path": "",
    "ssl_auth_path": "",
    "ssl_ocsp_path": "answer.der",
    "log_level": "LOUD",
    "experimental_logs_mode": "XML",
    "experimental_search_queue_size": "-1",
    "experimental_drop_search_after": "0",
    "experimental_nb_searches_per_core": "0",
    "search_workers": "many",
    "mcp_calls_per_minute": "0",
    "search_memory": "much",
    "query_log": "1 kB",
    "query_log_days": "0",
    "cluster": "http://a.test",
    "node_name": "a b",
    "node_url": "a.test",
    "max_indexing_memory": "much",
    "max_indexing_threads": "0",
    "parallel_batches_after": "-1",
    "changes_keep": "0",
    "experimental_max_number_of_batched_tasks": "1.5",
    "experimental_limit_batched_tasks_total_size": "-1",
    "experimental_embedding_cache_entries": "few",
    "s3_bucket_url": "",
    "s3_bucket_region": "",
    "s3_bucket_name": "",
    "s3_snapshot_prefix": "two\nlines",
    "s3_access_key": "",
    "s3_secret_key": "",
    "experimental_s3_role_arn": "",
    "experimental_s3_web_identity_token_file": "",
    "experimental_s3_max_in_flight_parts": "0",
    "experimental_s3_compression_level": "10",
    "experimental_s3_signature_duration_seconds": "0",
    "experimental_s3_multipart_part_size": "0",
    "experimental_personalization_api_key": "two\nlines",
}

# OCSP stapling is refused: it has no right value.
USABLE: list[Option] = [option for option in OPTIONS if option.name != "ssl_ocsp_path"]


def other(option: Option) -> str:
    """A right value that is not the default."""
    return "true" if option.is_switch else OTHER[option.name]


def companions(option: Option) -> dict[str, str]:
    """What must be given beside an option for it to be allowed."""
    if option.name == "env":
        return {"master_key": OTHER["master_key"]}
    for noun in ("dump", "snapshot"):
        if option.name in (f"ignore_missing_{noun}", f"ignore_{noun}_if_db_exists"):
            return {f"import_{noun}": OTHER[f"import_{noun}"]}
    if option.group == "Cluster":
        return {name: OTHER[name] for name in ("cluster", "node_name", "master_key") if name != option.name}
    if option.group == "Object store":
        role = ("experimental_s3_role_arn", "experimental_s3_web_identity_token_file")
        signers = role if option.name in role else ("s3_access_key", "s3_secret_key")
        names = ("s3_bucket_url", "s3_bucket_region", "s3_bucket_name", "s3_snapshot_prefix", *signers)
        return {name: OTHER[name] for name in names if name != option.name}
    tls = ("ssl_cert_path", "ssl_key_path", "ssl_auth_path") if option.group == "TLS" else ()
    return {name: OTHER[name] for name in tls if name != option.name}
