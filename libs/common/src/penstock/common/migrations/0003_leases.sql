-- Who leads. Each write of a leader shares the row's lock as a foreign key would, and a change of the generation, which
-- is part of a key, excludes it: a write is either before a change of leaders or refused after it.

CREATE TABLE leases (
  name text PRIMARY KEY,
  generation bigint NOT NULL,                  -- grows with each leader
  holder text NOT NULL,
  address text NOT NULL,                       -- where the holder is reached
  expires_at timestamptz NOT NULL,
  UNIQUE (name, generation)
);
INSERT INTO leases VALUES ('controller', 0, '', '', 'epoch');

-- Jobs that are no more and whose checkpoints may still be there: what is looked at again and again must not grow with
-- history.
CREATE TABLE deleted_jobs (
  job_id text PRIMARY KEY
);
CREATE FUNCTION note_deleted_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO deleted_jobs VALUES (OLD.id) ON CONFLICT DO NOTHING;
  RETURN OLD;
END $$;
CREATE TRIGGER deleted_job AFTER DELETE ON job_configs FOR EACH ROW EXECUTE FUNCTION note_deleted_job();
