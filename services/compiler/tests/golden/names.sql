CREATE TABLE t ("userId" TEXT, "a b" INT, Plain INT, "select" STRUCT<"X" INT>) WITH (connector = 'single_file', path = 'a.json', type = 'source');
SELECT "userId", "a b" AS "C d", PLAIN, T."select"."X" AS "`tick`" FROM t WHERE plain > 0;
