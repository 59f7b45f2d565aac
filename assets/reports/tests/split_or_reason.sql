{{ config(meta={'description': 'Every normalized edit has a split, or else a reason and, of a duplicate, the edit kept instead.'}) }}
select id
from {{ ref('stg_division') }}
where (split is null) = (reason is null) or (coalesce(reason, 'joins_splits') = 'joins_splits') <> (kept_id is null)
