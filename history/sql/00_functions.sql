-- Small functions that views are written in.

CREATE OR REPLACE MACRO tool_of(subject) AS
CASE WHEN starts_with(subject, 'service:') THEN NULL WHEN starts_with(subject, 'tool:') THEN subject[6:] ELSE split_part(subject, '|', 1) END;
COMMENT ON MACRO tool_of IS 'Tool that a trust key or a circuit is of; NULL where it is of a service';

CREATE OR REPLACE MACRO service_of(subject) AS
CASE WHEN starts_with(subject, 'service:') THEN subject[9:] ELSE nullif(regexp_extract(subject, '[|](?:domain|mcp_server)=([^|]+)', 1), '') END;
COMMENT ON MACRO service_of IS 'Service (domain or MCP server) that a trust key or a circuit is of; NULL where it names none';

CREATE OR REPLACE MACRO severity_rank(severity) AS
list_position(['repeated_auth', 'security', 'corruption', 'crash', 'server_error', 'timeout', 'validation', 'permission', 'invalid_input',
    'not_found', 'transient'], severity);
COMMENT ON MACRO severity_rank IS 'Place of the severity of a failure, from 1 for the worst';

CREATE OR REPLACE MACRO wilson_low(successes, trials) AS
CASE WHEN trials > 0 THEN greatest(0, (successes / trials + 1.9207294 / trials
    - 1.959964 * sqrt(successes / trials * (1 - successes / trials) / trials + 0.9603647 / trials / trials)) / (1 + 3.8414588 / trials)) END;
COMMENT ON MACRO wilson_low IS 'Lower bound of a share, 95 % (Wilson); NULL of no trials';

CREATE OR REPLACE MACRO wilson_high(successes, trials) AS
CASE WHEN trials > 0 THEN least(1, (successes / trials + 1.9207294 / trials
    + 1.959964 * sqrt(successes / trials * (1 - successes / trials) / trials + 0.9603647 / trials / trials)) / (1 + 3.8414588 / trials)) END;
COMMENT ON MACRO wilson_high IS 'Upper bound of a share, 95 % (Wilson); NULL of no trials';

CREATE OR REPLACE MACRO number_of(one, other) AS
CASE WHEN one IS NOT NULL AND other IS NOT NULL THEN hash(one, other) END;
COMMENT ON MACRO number_of IS 'Two texts as one number of 64 bits, by which joins and groups cost less; NULL where one of them is. Of ten million pairs two have the same number with a probability of 1 to 370,000';
