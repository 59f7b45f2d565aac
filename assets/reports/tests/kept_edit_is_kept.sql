{{ config(meta={'description': 'The edit that is kept instead of a duplicate is in a split.'}) }}
select fallen.id
from {{ ref('stg_division') }} as fallen
anti join (select id from {{ ref('stg_division') }} where split is not null) as kept on kept.id = fallen.kept_id
where fallen.reason <> 'joins_splits'
