-- Desired state is written by the api alone, current state by the controller alone.

CREATE TYPE job_state AS ENUM (
  'created', 'compiling', 'scheduling', 'running', 'checkpoint_stopping', 'stopping', 'rescaling', 'recovering',
  'restarting', 'finishing', 'failing', 'stopped', 'finished', 'failed'
);
CREATE TYPE stop_mode AS ENUM ('none', 'checkpoint', 'graceful', 'immediate', 'force');
CREATE TYPE restart_mode AS ENUM ('safe', 'force');
CREATE TYPE error_domain AS ENUM ('user', 'external', 'internal');

-- Desired -------------------------------------------------------------------------------------------------------------

CREATE TABLE pipelines (
  id text PRIMARY KEY,
  name text NOT NULL,
  query text NOT NULL,
  program bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON pipelines (created_at DESC, id DESC);

CREATE SEQUENCE job_config_revisions;

CREATE TABLE job_configs (
  id text PRIMARY KEY,
  pipeline_id text NOT NULL REFERENCES pipelines ON DELETE CASCADE,
  parallelism integer NOT NULL CHECK (parallelism BETWEEN 1 AND 1024),
  checkpoint_interval_ms bigint NOT NULL CHECK (checkpoint_interval_ms > 0),
  stop_mode stop_mode NOT NULL DEFAULT 'none',
  restart_nonce integer NOT NULL DEFAULT 0,
  restart_mode restart_mode NOT NULL DEFAULT 'safe',
  preview boolean NOT NULL DEFAULT false,
  revision bigint NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON job_configs (pipeline_id);
CREATE INDEX ON job_configs (created_at DESC, id DESC);
CREATE UNIQUE INDEX ON job_configs (revision);

-- The controller asks for revisions above the highest that it has seen. The lock is held until commit, so that
-- revisions become visible in their order and none is passed over.
CREATE FUNCTION assign_job_config_revision() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('job_config_revisions'));
  NEW.revision := nextval('job_config_revisions');
  RETURN NEW;
END $$;
CREATE TRIGGER job_config_revision BEFORE INSERT OR UPDATE ON job_configs
  FOR EACH ROW EXECUTE FUNCTION assign_job_config_revision();

-- Current -------------------------------------------------------------------------------------------------------------

CREATE TABLE job_statuses (
  job_id text PRIMARY KEY REFERENCES job_configs ON DELETE CASCADE,
  state job_state NOT NULL DEFAULT 'created',
  generation bigint NOT NULL DEFAULT 0,
  parallelism integer NOT NULL DEFAULT 0,      -- what it runs at
  tasks integer NOT NULL DEFAULT 0,            -- subtasks of this generation
  restarts integer NOT NULL DEFAULT 0,         -- since it was last healthy for a while
  restart_nonce integer NOT NULL DEFAULT 0,    -- the last that was acted on
  error_message text,
  error_hint text,
  error_domain error_domain,
  started_at timestamptz,                      -- of the first time that it ran
  finished_at timestamptz,
  updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON job_statuses (job_id) WHERE state NOT IN ('stopped', 'finished', 'failed');

CREATE TABLE job_events (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  job_id text NOT NULL REFERENCES job_configs ON DELETE CASCADE,
  at timestamptz NOT NULL DEFAULT now(),
  kind text NOT NULL CHECK (kind IN ('state', 'error', 'warning')),
  generation bigint NOT NULL,
  from_state job_state,
  to_state job_state,
  node_key text,                               -- of the program
  subtask integer,
  message text,
  hint text,
  domain error_domain
);
CREATE INDEX ON job_events (job_id, id DESC);

CREATE TABLE nodes (
  id text PRIMARY KEY,
  rpc_address text NOT NULL,
  slots integer NOT NULL,
  slots_used integer NOT NULL DEFAULT 0,
  registered_at timestamptz NOT NULL DEFAULT now(),
  seen_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE workers (
  id text PRIMARY KEY,
  node_id text,                                -- none: a child of the controller, or in its process
  rpc_address text NOT NULL,
  job_id text,                                 -- none: a standby
  generation bigint,
  tasks integer NOT NULL DEFAULT 0,
  registered_at timestamptz NOT NULL DEFAULT now(),
  seen_at timestamptz NOT NULL DEFAULT now()
);
