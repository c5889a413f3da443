-- The accounts that write most about a topic; altering the running job narrows the search (ELF, section 4.1):
--   ./run jobs alter campaign "SET WHERE text LIKE '%win%' AND followers < 20"
CREATE STREAM posts FROM files('posts/*.jsonl')
    FORMAT json(at TIMESTAMP, account STRING, text STRING, followers BIGINT)
    EVENT TIME at LATENESS 2 SECONDS;

CREATE JOB campaign AS
    SELECT account, COUNT(*) AS posts FROM posts WHERE text LIKE '%win%'
    GROUP BY account ORDER BY posts DESC LIMIT 5 WINDOWING 30 SECONDS;
