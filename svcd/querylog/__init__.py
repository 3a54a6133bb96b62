"""The query log: searches and click-throughs of this instance in one file of the data folder, counted on request.

Each process collects its searches (recorder) and passes them on twice a second; the main process writes them (store) and reads
them (report). Follows docs/guide/query-log.md.
"""
