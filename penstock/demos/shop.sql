-- A web shop's three applications on one stream; the third reads the other two (ELF's Figure 1).
-- Events are JSON lines: {"at": "2026-03-01T12:00:00Z", "user": "u1", "product": "Chess", "store": "games", "action": "click", "n": 2}
CREATE STREAM shop FROM files('shop/*.jsonl')
    FORMAT json(at TIMESTAMP, user STRING, product STRING, store STRING, action STRING, n BIGINT)
    EVENT TIME at LATENESS 2 SECONDS;

-- micro-promotion: the products with the most clicks get a discount
CREATE JOB micro_promotion AS
    SELECT product, SUM(n) AS clicks FROM shop WHERE action == 'click' AND store == 'games'
    GROUP BY product SORT BY SUM(n) DESC LIMIT 10 WINDOWING 30 SECONDS;

-- product-bundling: what one customer buys within five minutes belongs together
CREATE JOB bought_together AS
    SELECT a.product AS product, b.product AS other
    FROM (SELECT at, user, product FROM shop WHERE action = 'buy') a
    JOIN (SELECT at, user, product FROM shop WHERE action = 'buy') b
        ON a.user = b.user AND a.product <> b.product WITHIN 5 MINUTES;
CREATE JOB product_bundling AS
    SELECT product, other, COUNT(*) AS times FROM bought_together GROUP BY product, other WINDOWING 30 SECONDS;

-- sale-prediction: are the products that go with this one popular now?
CREATE JOB sale_prediction AS
    SELECT b.product, b.other, b.times, p.clicks
    FROM product_bundling b JOIN LATEST(micro_promotion) p ON b.other = p.product
    WHERE b.product = $product WITH ($product = 'Angry Birds');
