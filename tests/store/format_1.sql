-- instance.sqlite as format 1 made it, with a little in it. Not to be changed: a test upgrades it.
CREATE TABLE "indexes" (
   "uid" TEXT PRIMARY KEY,
   "uuid" TEXT NOT NULL,
   "created_at" INTEGER NOT NULL,
   "updated_at" INTEGER NOT NULL,
   "primary_key" TEXT,
   "stats" TEXT NOT NULL
);
CREATE TABLE "features" (
   "name" TEXT PRIMARY KEY,
   "enabled" INTEGER
);
CREATE TABLE "tasks" (
   "uid" INTEGER PRIMARY KEY,
   "batch_uid" INTEGER,
   "index_uid" TEXT,
   "status" TEXT NOT NULL,
   "kind" TEXT NOT NULL,
   "canceled_by" INTEGER,
   "details" TEXT,
   "error" TEXT,
   "content" TEXT,
   "payload" TEXT,
   "payload_bytes" INTEGER,
   "custom_metadata" TEXT,
   "enqueued_at" INTEGER NOT NULL,
   "started_at" INTEGER,
   "finished_at" INTEGER
);
CREATE TABLE "batches" (
   "uid" INTEGER PRIMARY KEY,
   "details" TEXT,
   "stats" TEXT,
   "strategy" TEXT,
   "started_at" INTEGER,
   "finished_at" INTEGER,
   "earliest_enqueued_at" INTEGER,
   "latest_enqueued_at" INTEGER
);
CREATE INDEX "idx_tasks_index_uid"
    ON "tasks" ("index_uid");
CREATE INDEX "idx_tasks_kind"
    ON "tasks" ("kind");
CREATE INDEX "idx_tasks_batch_uid"
    ON "tasks" ("batch_uid");
CREATE INDEX "idx_tasks_canceled_by"
    ON "tasks" ("canceled_by");
CREATE INDEX "idx_tasks_enqueued_at"
    ON "tasks" ("enqueued_at");
CREATE INDEX "idx_tasks_started_at"
    ON "tasks" ("started_at");
CREATE INDEX "idx_tasks_finished_at"
    ON "tasks" ("finished_at");
CREATE INDEX "idx_tasks_status_kind_uid"
    ON "tasks" ("status", "kind", "uid");
INSERT INTO indexes VALUES ('films', '0d5f7c1e-0000-4000-8000-000000000000', 1, 1, 'id', '{}');
INSERT INTO features VALUES ('metrics', 1);
INSERT INTO tasks(uid, batch_uid, index_uid, status, kind, details, content, enqueued_at, started_at, finished_at)
    VALUES (0, 0, 'films', 'succeeded', 'indexCreation', '{"primaryKey": "id"}', '{}', 1, 2, 3);
INSERT INTO tasks(uid, index_uid, status, kind, details, content, enqueued_at)
    VALUES (1, 'books', 'enqueued', 'indexCreation', '{"primaryKey": null}', '{}', 4);
INSERT INTO batches VALUES (0, '{}', '{}', 'unspecified', 2, 3, 1, 1);
PRAGMA user_version = 1;
