-- Nodes that are to be emptied, so that they can be taken away.

-- Desired -------------------------------------------------------------------------------------------------------------

-- By the id that a node keeps: one that is started again is still drained.
CREATE TABLE node_drains (
  node_id text PRIMARY KEY,
  created_at timestamptz NOT NULL DEFAULT now()
);

-- Current -------------------------------------------------------------------------------------------------------------

ALTER TABLE nodes
  ADD COLUMN draining boolean NOT NULL DEFAULT false; -- nothing more is placed on it
