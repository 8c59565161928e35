-- Checkpoints and savepoints. What is here outlives its job: files are found by it, and savepoints can be started from.

CREATE TYPE checkpoint_state AS ENUM ('inprogress', 'committing', 'ready', 'abandoned', 'deleted');
CREATE TYPE savepoint_state AS ENUM ('ready', 'failed', 'deleted');

-- Desired -------------------------------------------------------------------------------------------------------------

ALTER TABLE job_configs
  ADD COLUMN restore_from text,                            -- the savepoint that the job begins with
  ADD COLUMN ignore_state_nonce integer NOT NULL DEFAULT 0, -- the restart_nonce of a restart from the very beginning
  ADD COLUMN allow_fallback boolean NOT NULL DEFAULT false; -- an older checkpoint will do when the newest is damaged

CREATE TABLE savepoint_requests (
  id text PRIMARY KEY,
  job_id text NOT NULL,
  name text NOT NULL,
  deleted boolean NOT NULL DEFAULT false,      -- it is no longer wanted
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX ON savepoint_requests (job_id, name) WHERE NOT deleted;

-- Current -------------------------------------------------------------------------------------------------------------

ALTER TABLE job_statuses
  ADD COLUMN ignore_state_nonce integer NOT NULL DEFAULT 0; -- the last that was acted on

-- Those that are committing or ready can be restored; the files of the others may be gone.
CREATE TABLE checkpoints (
  job_id text NOT NULL,
  epoch bigint NOT NULL,
  generation bigint NOT NULL,
  state checkpoint_state NOT NULL,
  then_stop boolean NOT NULL,
  savepoint_id text,                           -- that it was made for
  started_at timestamptz NOT NULL,
  finished_at timestamptz,
  bytes bigint NOT NULL DEFAULT 0,             -- written for it
  error text,
  details jsonb,                               -- spans and bytes of each subtask
  PRIMARY KEY (job_id, epoch)
);
CREATE INDEX ON checkpoints (savepoint_id) WHERE savepoint_id IS NOT NULL;

CREATE TABLE savepoints (
  id text PRIMARY KEY,
  job_id text NOT NULL,
  pipeline_id text,                            -- none: it was gone already
  name text NOT NULL,
  state savepoint_state NOT NULL,
  epoch bigint,
  path text,                                   -- in the job's folder
  bytes bigint NOT NULL DEFAULT 0,             -- of all its files
  error text,
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON savepoints (job_id);
