-- By side and language; `language` is null in the row over all of them.
with sides as (
    select dataset, language, 'pre' as side, pre_tokens as tokens from {{ ref('stg_edits') }}
    union all
    select dataset, language, 'post' as side, post_tokens as tokens from {{ ref('stg_edits') }}
)

select
    dataset,
    side,
    language,
    count(*) as edits,
    sum(tokens)::bigint as total,
    round(avg(tokens), 1) as mean,
    quantile_disc(tokens, 0.05) as p5,
    quantile_disc(tokens, 0.25) as p25,
    quantile_disc(tokens, 0.5) as median,
    quantile_disc(tokens, 0.75) as p75,
    quantile_disc(tokens, 0.95) as p95,
    max(tokens) as max
from sides
group by grouping sets ((dataset, side, language), (dataset, side))
order by all
