{{ config(meta={
    'dagster': {'ref': {'name': 'stg_edits'}},
    'description': 'Every text has a token, and no text before has more than the configuration allows.',
}) }}
select edits.id
from {{ ref('stg_edits') }} as edits
cross join {{ ref('stg_limits') }} as limits
where edits.pre_tokens not between 1 and limits.max_pre_tokens or edits.post_tokens < 1
