{{ config(meta={
    'dagster': {'ref': {'name': 'stg_edits'}},
    'description': 'Every edit of a stored split is there by the division, and every edit of the division is there.',
}) }}
with divided as (
    select division.id, division.dataset, division.language, division.split, division.cluster
    from {{ ref('stg_division') }} as division
    inner join {{ ref('stg_stored_splits') }} using (language, split)
)

select coalesce(divided.id, edits.id) as id
from divided
full join {{ ref('stg_edits') }} as edits using (id, dataset, language, split, cluster)
where divided.id is null or edits.id is null
