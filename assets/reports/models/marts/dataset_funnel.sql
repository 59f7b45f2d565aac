-- From the rows of the source to the splits. A loss is taken off what stands before it; every number is counted where
-- it arose (records, drops, normalized edits, division), so that the test `funnel_adds_up` compares independent counts.
with counted as (
    select dataset, stage, name, number from {{ ref('stg_counts') }}
),

divided as (
    select dataset, coalesce(split, reason) as outcome, split is not null as is_kept, count(*) as number
    from {{ ref('stg_division') }}
    group by all
),

normalized as (
    select dataset, count(*) as number from {{ ref('stg_normalized') }} group by all
),

steps as (
    select dataset, 1 as position, 'at_source' as step, '' as reason, number
    from counted where stage = 'raw' and name = 'num_records'
    union all
    select dataset, 2, 'not_stored', split_part(name, '.', 2), number
    from counted where stage = 'raw' and starts_with(name, 'not_kept.')
    union all
    select dataset, 3, 'read', '', number
    from counted where stage = 'normalized' and name = 'rows_in'
    union all
    select dataset, 4, 'outcomes', '', sum(number)
    from counted
    where stage = 'normalized' and (name in ('rows', 'labels') or starts_with(name, 'dropped.'))
    group by all
    union all
    select dataset, 5, 'dropped', reason, count(*)
    from {{ ref('stg_drops') }}
    where reason <> 'contaminated'
    group by all
    union all
    select datasets.dataset, 6, 'contaminated', '', count(drops.dataset)
    from {{ ref('stg_datasets') }} as datasets
    left join {{ ref('stg_drops') }} as drops on drops.dataset = datasets.dataset and drops.reason = 'contaminated'
    group by all
    union all
    select dataset, 7, 'labels', '', count(*) from {{ ref('stg_labels') }} group by all
    union all
    select datasets.dataset, 8, 'edits', '', coalesce(normalized.number, 0)
    from {{ ref('stg_datasets') }} as datasets
    left join normalized using (dataset)
    union all
    select dataset, 9, 'not_split', '', normalized.number - coalesce(divided_all.number, 0)
    from normalized
    left join (select dataset, sum(number) as number from divided group by all) as divided_all using (dataset)
    where normalized.number > coalesce(divided_all.number, 0)
    union all
    select dataset, 10, 'duplicates', outcome, number from divided where not is_kept
    union all
    select datasets.dataset, 11, 'kept', '', coalesce(sum(divided.number), 0)
    from {{ ref('stg_datasets') }} as datasets
    left join divided on divided.dataset = datasets.dataset and divided.is_kept
    group by all
    union all
    select dataset, case outcome when 'train' then 12 when 'dev' then 13 else 14 end, 'split', outcome, number
    from divided where is_kept
)

select
    dataset,
    position,
    step,
    reason,
    number::bigint as number,
    step in ('not_stored', 'dropped', 'contaminated', 'labels', 'not_split', 'duplicates') as is_loss
from steps
order by all
