CREATE TABLE t (timestamp TIMESTAMP, date DATE, time TIME, value INT, key TEXT, type TEXT, name TEXT, level INT, user TEXT, "order" INT, text TEXT, json JSON, source TEXT, position TEXT, row INT, count INT, start TIMESTAMP, month INT, path TEXT, data TEXT, id BIGINT, window TEXT, status TEXT, language TEXT, method TEXT, host TEXT, comment TEXT, version INT, format TEXT, filter TEXT, action TEXT, hash TEXT, index INT, map MAP<TEXT, INT>, "end" TIMESTAMP)
WITH ('connector' = 'single_file', path = 'x', 'type' = 'source');
SELECT timestamp, date, time, value, key, type, name, level, t.user, "order", text, json, source, position, row, count, start, month, path, data, id, window, status, language, method, host, comment, version, format, filter, action, hash, index, map, "end" FROM t WHERE timestamp > '2020-01-01' AND value > 1;
CREATE TABLE v AS (SELECT value FROM t);
CREATE TABLE o (a INT) WITH (connector = 'blackhole');
INSERT INTO o (SELECT value FROM v);
INSERT INTO o (a) (SELECT value FROM v);
SELECT T.Value AS "Value", value + 1 AS VALUE FROM T;
(SELECT value FROM t) UNION ALL (SELECT level FROM t);
SELECT INTERVAL '1 day' AS im, map['a'] AS ma, json->>'a' AS ja, timestamp::date AS d, NULL AS nothing, true AS yes, 1e3 AS f, 12345678901234567890 AS big, -1 AS neg, x'ff' AS hx FROM t;
