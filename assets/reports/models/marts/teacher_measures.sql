-- Of the actions that were applied; a share is of those of which the measure is known.
select
    teacher,
    language,
    case when general then 'general' else 'literal' end as actions,
    count(*) as steps,
    round(avg((over_in = 0)::int), 4) as nothing_unwanted,
    round(avg((over_out = 0)::int), 4) as no_foreign_hit,
    quantile_disc(over_out, 0.5) as over_out_p50,
    quantile_disc(over_out, 0.9) as over_out_p90,
    max(over_out) as over_out_max,
    round(avg(idempotent::int), 4) as idempotent,
    round(avg((neg_fail = 0)::int), 4) as negatives_kept,
    quantile_disc(mdl, 0.5) as mdl_p50,
    round(avg(support), 2) as mean_support
from {{ ref('stg_steps') }}
where verdict = 'ok'
group by all
order by all
