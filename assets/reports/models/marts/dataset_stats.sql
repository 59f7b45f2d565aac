select
    dataset,
    language,
    split,
    count(*) as edits,
    count(distinct origin_group) as origin_groups,
    count(distinct cluster) as clusters,
    round(avg(pre_tokens), 1) as mean_pre_tokens,
    quantile_disc(pre_tokens, 0.5) as median_pre_tokens,
    quantile_disc(pre_tokens, 0.95) as p95_pre_tokens,
    round(avg(post_tokens), 1) as mean_post_tokens
from {{ ref('stg_edits') }}
group by all
order by all
