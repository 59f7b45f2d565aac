-- Bins of powers of two: from `tokens_from` up to, but not, twice as many.
with sides as (
    select dataset, 'pre' as side, pre_tokens as tokens from {{ ref('stg_edits') }}
    union all
    select dataset, 'post' as side, post_tokens as tokens from {{ ref('stg_edits') }}
)

select dataset, side, (1::bigint << (length(bin(greatest(tokens, 1))) - 1)::int) as tokens_from, count(*) as edits
from sides
group by all
order by all
