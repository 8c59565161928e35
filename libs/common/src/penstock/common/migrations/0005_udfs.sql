-- Python functions that every query can call. A pipeline keeps the versions that it was compiled with.

-- Desired -------------------------------------------------------------------------------------------------------------

CREATE TABLE udfs (
  id text PRIMARY KEY,
  name text NOT NULL UNIQUE,
  source text NOT NULL,
  built bytea NOT NULL,                        -- BuiltUdf: what the compiler made of it
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now()
);
