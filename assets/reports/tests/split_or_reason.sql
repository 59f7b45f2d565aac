{{ config(meta={'description': 'Every normalized edit has a split, or else a reason and the edit kept instead.'}) }}
select id
from {{ ref('stg_division') }}
where (split is null) = (reason is null) or (reason is null) <> (kept_id is null)
