with normalized as (
    select dataset, language, count(*) as edits from {{ ref('stg_normalized') }} group by all
),

kept as (
    select dataset, language, count(*) as kept from {{ ref('stg_division') }} where split is not null group by all
),

source as (
    select dataset, number as source_rows from {{ ref('stg_counts') }} where stage = 'raw' and name = 'num_records'
)

select
    normalized.dataset,
    normalized.language,
    normalized.edits,
    coalesce(kept.kept, 0) as kept,
    round(100 * kept / nullif(sum(kept.kept) over (partition by normalized.dataset), 0), 2) as percent_of_kept,
    round(100 * coalesce(kept.kept, 0) / nullif(source.source_rows, 0), 2) as percent_of_rows
from normalized
left join kept using (dataset, language)
left join source using (dataset)
order by all
