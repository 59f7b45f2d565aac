-- The licenses of rows; those that are not allowed are among the drops.
with edits as (
    select dataset, license, count(*) as edits from {{ ref('stg_normalized') }} group by all
),

labels as (
    select dataset, license, count(*) as labels from {{ ref('stg_labels') }} group by all
),

kept as (
    select dataset, license, count(*) as kept from {{ ref('stg_edits') }} group by all
),

source as (
    select dataset, number as source_rows from {{ ref('stg_counts') }} where stage = 'raw' and name = 'num_records'
)

select
    dataset,
    license,
    coalesce(edits.edits, 0) as edits,
    coalesce(labels.labels, 0) as labels,
    coalesce(kept.kept, 0) as kept,
    round(100 * kept.kept / nullif(sum(kept.kept) over (partition by dataset), 0), 2) as percent_of_kept,
    round(100 * coalesce(kept.kept, 0) / nullif(source.source_rows, 0), 2) as percent_of_rows
from edits
full join labels using (dataset, license)
left join kept using (dataset, license)
left join source using (dataset)
order by dataset, license
