{{ config(meta={'description': 'No text before is in two splits.'}) }}
select pre_md5
from {{ ref('stg_edits') }}
group by pre_md5
having count(distinct split) > 1
