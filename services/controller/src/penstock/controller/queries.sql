-- The controller's statements, each under its name. It reads desired state, and writes current state alone.

-- name: newest_revision
SELECT coalesce(max(revision), 0) FROM job_configs;

-- name: unsettled_jobs
-- Those that are under way, those never seen, and those at rest of which more is wanted.
SELECT c.id, c.pipeline_id, c.parallelism, c.stop_mode, c.restart_nonce, c.restart_mode, c.preview, c.revision,
  c.checkpoint_interval_ms, c.restore_from, c.ignore_state_nonce, c.allow_fallback,
  s.job_id, s.state, s.generation, s.parallelism AS status_parallelism, s.tasks, s.restarts,
  s.restart_nonce AS status_restart_nonce, s.ignore_state_nonce AS status_ignore_state_nonce,
  s.error_message, s.error_hint, s.error_domain, s.started_at, s.finished_at
FROM job_configs c LEFT JOIN job_statuses s ON s.job_id = c.id
WHERE s.job_id IS NULL
  OR s.state NOT IN ('stopped', 'finished', 'failed')
  OR (s.state = 'stopped' AND c.stop_mode = 'none')
  OR (s.state = 'failed' AND c.restart_nonce <> s.restart_nonce)
ORDER BY c.revision;

-- name: changed_jobs
SELECT c.id, c.pipeline_id, c.parallelism, c.stop_mode, c.restart_nonce, c.restart_mode, c.preview, c.revision,
  c.checkpoint_interval_ms, c.restore_from, c.ignore_state_nonce, c.allow_fallback,
  s.job_id, s.state, s.generation, s.parallelism AS status_parallelism, s.tasks, s.restarts,
  s.restart_nonce AS status_restart_nonce, s.ignore_state_nonce AS status_ignore_state_nonce,
  s.error_message, s.error_hint, s.error_domain, s.started_at, s.finished_at
FROM job_configs c LEFT JOIN job_statuses s ON s.job_id = c.id
WHERE c.revision > $1
ORDER BY c.revision;

-- name: deleted_jobs
SELECT asked.id FROM unnest($1::text[]) AS asked(id)
WHERE NOT EXISTS (SELECT FROM job_configs c WHERE c.id = asked.id);

-- name: job_state
SELECT coalesce(s.state, 'created') FROM job_configs c LEFT JOIN job_statuses s ON s.job_id = c.id WHERE c.id = $1;

-- name: program
SELECT program FROM pipelines WHERE id = $1;

-- name: save_status
INSERT INTO job_statuses (job_id, state, generation, parallelism, tasks, restarts, restart_nonce, ignore_state_nonce,
  error_message, error_hint, error_domain, started_at, finished_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, now())
ON CONFLICT (job_id) DO UPDATE SET
  state = excluded.state, generation = excluded.generation, parallelism = excluded.parallelism,
  tasks = excluded.tasks, restarts = excluded.restarts, restart_nonce = excluded.restart_nonce,
  ignore_state_nonce = excluded.ignore_state_nonce,
  error_message = excluded.error_message, error_hint = excluded.error_hint, error_domain = excluded.error_domain,
  started_at = excluded.started_at, finished_at = excluded.finished_at, updated_at = excluded.updated_at;

-- name: add_event
INSERT INTO job_events (job_id, at, kind, generation, from_state, to_state, node_key, subtask, message, hint, domain)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: save_node
INSERT INTO nodes (id, rpc_address, slots, slots_used, draining, seen_at) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (id) DO UPDATE SET
  rpc_address = excluded.rpc_address, slots = excluded.slots, slots_used = excluded.slots_used,
  draining = excluded.draining, seen_at = excluded.seen_at;

-- name: drop_other_nodes
DELETE FROM nodes WHERE id <> ALL($1::text[]);

-- name: node_drains
SELECT node_id FROM node_drains;

-- name: save_workers
INSERT INTO workers (id, node_id, rpc_address, job_id, generation, tasks, seen_at)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::integer[], $7::timestamptz[])
ON CONFLICT (id) DO UPDATE SET
  node_id = excluded.node_id, rpc_address = excluded.rpc_address, job_id = excluded.job_id,
  generation = excluded.generation, tasks = excluded.tasks, seen_at = excluded.seen_at;

-- name: drop_other_workers
DELETE FROM workers WHERE id <> ALL($1::text[]);

-- name: save_checkpoint
-- A controller that took over knows less of what happened in subtasks.
INSERT INTO checkpoints (job_id, epoch, generation, state, then_stop, started_at, savepoint_id, finished_at, bytes,
  error, details)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (job_id, epoch) DO UPDATE SET
  state = excluded.state, savepoint_id = excluded.savepoint_id, finished_at = excluded.finished_at,
  bytes = greatest(excluded.bytes, checkpoints.bytes), error = excluded.error,
  details = coalesce(excluded.details, checkpoints.details);

-- name: last_epoch
SELECT coalesce(max(epoch), 0) FROM checkpoints WHERE job_id = $1;

-- name: live_checkpoints
SELECT job_id, epoch, generation, state, then_stop, started_at, savepoint_id, finished_at, bytes, error
FROM checkpoints WHERE job_id = $1 AND state IN ('inprogress', 'committing', 'ready') ORDER BY epoch;

-- name: expire_checkpoints
UPDATE checkpoints SET state = 'deleted' WHERE job_id = $1 AND epoch = ANY($2::bigint[]);

-- name: forget_state
UPDATE checkpoints SET state = 'deleted' WHERE job_id = $1 AND state IN ('inprogress', 'committing', 'ready');

-- name: prune_checkpoints
-- The newest epoch stays, since none is used twice.
DELETE FROM checkpoints WHERE job_id = $1 AND state IN ('abandoned', 'deleted') AND epoch < (
  SELECT max(epoch) FROM checkpoints WHERE job_id = $1) - $2;

-- name: jobs_to_sweep
SELECT job_id FROM deleted_jobs;

-- name: find_deleted_jobs
-- Of what was written about a job after it had been swept.
INSERT INTO deleted_jobs
SELECT DISTINCT k.job_id FROM checkpoints k WHERE NOT EXISTS (SELECT FROM job_configs c WHERE c.id = k.job_id)
ON CONFLICT DO NOTHING;

-- name: forget_deleted_job
DELETE FROM deleted_jobs WHERE job_id = $1;

-- name: drop_checkpoints
DELETE FROM checkpoints WHERE job_id = $1;

-- name: open_savepoint_requests
-- Those that are wanted and not there, and those that are there, or might come to be, and are not wanted.
SELECT r.id, r.job_id, r.name, r.deleted, c.pipeline_id, coalesce(c.preview, false) AS preview,
  s.state, s.pipeline_id AS made_pipeline_id, s.epoch, s.path, s.bytes, s.error
FROM savepoint_requests r
LEFT JOIN savepoints s ON s.id = r.id
LEFT JOIN job_configs c ON c.id = r.job_id
WHERE s.id IS NULL OR (r.deleted AND s.state <> 'deleted')
ORDER BY r.deleted DESC, r.created_at, r.id;

-- name: savepoint
SELECT id, job_id, pipeline_id, name, state, epoch, path, bytes, error FROM savepoints WHERE id = $1;

-- name: ready_savepoints
SELECT id, job_id, pipeline_id, name, state, epoch, path, bytes, error FROM savepoints
WHERE job_id = $1 AND state = 'ready' ORDER BY id;

-- name: save_savepoint
INSERT INTO savepoints (id, job_id, pipeline_id, name, state, epoch, path, bytes, error)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (id) DO UPDATE SET state = excluded.state, error = excluded.error;

-- name: savepoint_users
-- The jobs that have nothing else to start from.
SELECT c.id FROM job_configs c WHERE c.restore_from = $1 AND c.ignore_state_nonce = 0 AND NOT EXISTS (
  SELECT FROM checkpoints k WHERE k.job_id = c.id AND k.state IN ('committing', 'ready'));

-- name: checkpoint_for_savepoint
SELECT job_id, epoch, generation, state, then_stop, started_at, savepoint_id, finished_at, bytes, error
FROM checkpoints WHERE savepoint_id = $1 ORDER BY epoch DESC LIMIT 1;

-- name: lease
SELECT generation, holder, address, expires_at, clock_timestamp() AS now FROM leases WHERE name = 'controller';

-- name: swap_lease
UPDATE leases SET generation = $3, holder = $4, address = $5, expires_at = $6
WHERE name = 'controller' AND generation = $1 AND expires_at = $2;

-- name: fence
-- Held until the end of the transaction, which a leader that is suspended in it does not hold for long.
SELECT generation FROM leases,
  set_config('idle_in_transaction_session_timeout', '2000', true)
WHERE name = 'controller' FOR KEY SHARE OF leases;
