-- The database, with wal_level=logical, of which Debezium tells the changes.
CREATE ROLE debezium LOGIN REPLICATION PASSWORD 'secret';
GRANT CREATE ON DATABASE shop TO debezium;
CREATE TABLE orders (id integer PRIMARY KEY, customer text NOT NULL, amount numeric(10, 2) NOT NULL);
ALTER TABLE orders OWNER TO debezium;
ALTER TABLE orders REPLICA IDENTITY FULL;
INSERT INTO orders SELECT id, 'customer ' || id % 7, id + 0.5 FROM generate_series(1, 200) AS id;
