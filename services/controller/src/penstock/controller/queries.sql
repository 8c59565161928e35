-- The controller's statements, each under its name. It reads desired state, and writes current state alone.

-- name: newest_revision
SELECT coalesce(max(revision), 0) FROM job_configs;

-- name: unsettled_jobs
-- Those that are under way, those never seen, and those at rest of which more is wanted.
SELECT c.id, c.pipeline_id, c.parallelism, c.stop_mode, c.restart_nonce, c.restart_mode, c.preview, c.revision,
  s.job_id, s.state, s.generation, s.parallelism AS status_parallelism, s.tasks, s.restarts,
  s.restart_nonce AS status_restart_nonce, s.error_message, s.error_hint, s.error_domain, s.started_at, s.finished_at
FROM job_configs c LEFT JOIN job_statuses s ON s.job_id = c.id
WHERE s.job_id IS NULL
  OR s.state NOT IN ('stopped', 'finished', 'failed')
  OR (s.state = 'stopped' AND c.stop_mode = 'none')
  OR (s.state = 'failed' AND c.restart_nonce <> s.restart_nonce)
ORDER BY c.revision;

-- name: changed_jobs
SELECT c.id, c.pipeline_id, c.parallelism, c.stop_mode, c.restart_nonce, c.restart_mode, c.preview, c.revision,
  s.job_id, s.state, s.generation, s.parallelism AS status_parallelism, s.tasks, s.restarts,
  s.restart_nonce AS status_restart_nonce, s.error_message, s.error_hint, s.error_domain, s.started_at, s.finished_at
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
INSERT INTO job_statuses (job_id, state, generation, parallelism, tasks, restarts, restart_nonce,
  error_message, error_hint, error_domain, started_at, finished_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, now())
ON CONFLICT (job_id) DO UPDATE SET
  state = excluded.state, generation = excluded.generation, parallelism = excluded.parallelism,
  tasks = excluded.tasks, restarts = excluded.restarts, restart_nonce = excluded.restart_nonce,
  error_message = excluded.error_message, error_hint = excluded.error_hint, error_domain = excluded.error_domain,
  started_at = excluded.started_at, finished_at = excluded.finished_at, updated_at = excluded.updated_at;

-- name: add_event
INSERT INTO job_events (job_id, at, kind, generation, from_state, to_state, node_key, subtask, message, hint, domain)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: save_node
INSERT INTO nodes (id, rpc_address, slots, slots_used, seen_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (id) DO UPDATE SET
  rpc_address = excluded.rpc_address, slots = excluded.slots, slots_used = excluded.slots_used,
  seen_at = excluded.seen_at;

-- name: drop_other_nodes
DELETE FROM nodes WHERE id <> ALL($1::text[]);

-- name: save_worker
INSERT INTO workers (id, node_id, rpc_address, job_id, generation, tasks, seen_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (id) DO UPDATE SET
  node_id = excluded.node_id, rpc_address = excluded.rpc_address, job_id = excluded.job_id,
  generation = excluded.generation, tasks = excluded.tasks, seen_at = excluded.seen_at;

-- name: drop_other_workers
DELETE FROM workers WHERE id <> ALL($1::text[]);
